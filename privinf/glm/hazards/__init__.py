"""Proportional hazards: one-step fits of Cox's regression by sums of scores up to a stop."""
