"""The hospital visits that benchmarks/query.py asks about: the table, the questions, what is told of the answers."""
