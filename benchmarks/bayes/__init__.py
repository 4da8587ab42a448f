"""Tables for naive Bayes from local reports."""
