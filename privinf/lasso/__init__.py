"""Sparse regression with de-biased intervals (DebiasedLasso), and the mean of sparse vectors."""
