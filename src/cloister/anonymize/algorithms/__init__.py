"""Algorithms that make classes of rows: each takes columns as codes and a requirement."""
