"""The papers' own algorithms, as written, for comparison: ``variant="paper"``."""
