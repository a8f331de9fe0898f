"""Least squares from noisy second moments (MomentOLS): one curator, or several sites."""
