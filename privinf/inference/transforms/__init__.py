"""Weierstrass and Bernoulli transforms (what noise does to a function) and their inverses."""
