"""Synthetic tables that owners made elsewhere: check, charge, and share them."""
