"""Estimators, tests and intervals as plain functions of releases: numpy and scipy only."""
