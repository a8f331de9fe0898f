"""The private optimizers of DOME's paper: DP-SGD, DP-Adam, random sketches and DOME."""
