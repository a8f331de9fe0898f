"""Fitting: how rows, arrays, federations and releases become a model, and an equation becomes a result."""
