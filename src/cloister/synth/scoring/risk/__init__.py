"""Attacks on synthetic tables."""
