"""Models of a table: fit noisy marginals, answer questions, draw rows."""
