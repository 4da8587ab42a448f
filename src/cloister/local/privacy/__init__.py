"""The privacy of reports: certificates, advice, the shuffle model."""
