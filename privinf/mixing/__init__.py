"""Mixing."""
