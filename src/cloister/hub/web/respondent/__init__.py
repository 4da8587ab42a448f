"""What a respondent meets: a page, its questions as JSON, a ballot, and where reports go. No account and no cookie."""
