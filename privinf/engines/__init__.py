"""Optimisers driven by releases: state in, state out; they never see a row."""
