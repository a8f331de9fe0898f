"""Sums made inside a database: what is asked of its columns, and how a statistic becomes a query."""
