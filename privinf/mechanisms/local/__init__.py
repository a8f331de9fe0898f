"""One message a client: examples, randomized response, signs, modulation."""
