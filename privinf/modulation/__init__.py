"""Modulation."""
