"""What benchmarks/learn.py measures: data, models, peers, tables."""
