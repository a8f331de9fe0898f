"""Generalized linear models over a federation (FederatedGLM): Newton rounds, DP-Adam, sketches (DOME)."""
