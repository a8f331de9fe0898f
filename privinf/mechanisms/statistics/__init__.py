"""Contributions of a record to the sums of queries, with their sensitivities and ranges."""
