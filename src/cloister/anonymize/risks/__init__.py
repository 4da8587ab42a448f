"""Risk of a release: attackers with their success, and uniqueness in the population."""
