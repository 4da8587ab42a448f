"""Distance between a synthetic table and the real one."""
