"""Made-up reports: bounds on their effect, and tests that detect them."""
