"""What `flwr run` sends: the analysis for the server, and nothing but a door for the sites."""
