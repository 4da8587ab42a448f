"""Estimates from reports: shares, means, scales, ratios, naive Bayes."""
