"""Sparse logistic regression with debiased intervals: the lasso tower's model of a response of two levels."""
