"""Linear classifiers and regressions."""
