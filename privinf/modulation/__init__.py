"""Least squares from modulated samples, one noisy message a client (ModulatedOLS)."""
