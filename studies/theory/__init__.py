"""Theorems of papers 4 and 5 as functions: bounds and biases with their constants, printed and repaired."""
