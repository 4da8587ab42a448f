"""Respondent's part of a survey: a page, its questions as JSON, ballots and reports. No account and no cookie."""
