"""Decision trees, random forests, and boosting with one shape per feature."""
