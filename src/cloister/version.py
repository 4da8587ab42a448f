"""The version of Cloister, also written into every receipt."""

__version__ = "0.1.0"
