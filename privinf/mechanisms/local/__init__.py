"""One message per client: examples, randomized response, signs, modulation."""
