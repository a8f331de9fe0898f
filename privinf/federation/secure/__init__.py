"""Secure."""
