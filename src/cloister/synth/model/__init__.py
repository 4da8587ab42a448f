"""Models of a table: fit noisy marginals, answer queries, sample rows."""
