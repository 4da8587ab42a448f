"""Reports of a score: charts, page, text."""
