"""Lasso."""
