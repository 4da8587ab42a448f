"""Columns as public cells."""
