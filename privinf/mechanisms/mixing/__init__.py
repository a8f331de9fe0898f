"""Releases of one party's columns: mixed rows, or all rows with noise."""
