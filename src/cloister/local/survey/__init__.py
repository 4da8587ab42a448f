"""Questions, forms, envelopes, and a respondent's memory of answers."""
