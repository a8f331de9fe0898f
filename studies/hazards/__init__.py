"""Proportional hazards: simulated releases for studies of many fits, and Cox's regression without noise."""
