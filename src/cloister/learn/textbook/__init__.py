"""The textbook's methods, corrected, for lessons. None is for deployment."""
