"""Made-up reports: how far they move an estimate, and tests that find them."""
