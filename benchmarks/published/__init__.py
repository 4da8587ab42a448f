"""Methods as their papers give them, in floats and not private, to compare with."""
