"""Sparse regression: clip radii, precision columns, debiased coordinates, their joint law."""
