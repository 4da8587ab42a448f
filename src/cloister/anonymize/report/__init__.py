"""The report of a release as one page, with its charts."""
