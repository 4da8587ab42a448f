"""Synthetic tables, their metadata files and their expected errors."""
