"""Two or more answers of one person: cross-tables, group means, naive Bayes."""
