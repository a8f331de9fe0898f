"""Heterogeneous."""
