"""Search, cross-validation and evaluation that are paid for."""
