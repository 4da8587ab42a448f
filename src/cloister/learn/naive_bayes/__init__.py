"""Naive Bayes: Gaussian, categorical and mixed."""
