"""Noisy measurements: marginals, moments, groups of rows."""
