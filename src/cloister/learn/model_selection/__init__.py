"""Private search, cross-validation and evaluation."""
