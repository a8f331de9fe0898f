"""Studies of privinf's methods: designs with a known truth, replications, audits, baselines, data, variants.

They stand beside the package and are not in its wheel. It finds them where the root of the repository is on
Python's path, as an editable installation of a clone puts it there.
"""
