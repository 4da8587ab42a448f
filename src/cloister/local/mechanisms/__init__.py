"""The public facts of each mechanism: what both halves, a reader and a regulator may know."""
