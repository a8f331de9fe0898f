"""The papers' own algorithms, as restored, for comparison: ``variant="paper"``."""
