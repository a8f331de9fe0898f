"""privinf: statistical inference from private data."""
