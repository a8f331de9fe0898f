"""What `flwr run` sends: the analysis for the server, and nothing but an entry point for the sites."""
