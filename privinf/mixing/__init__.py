"""Regression on released rows of vertically split data (RMGMOLS, DGMOLS, BGMOLS)."""
