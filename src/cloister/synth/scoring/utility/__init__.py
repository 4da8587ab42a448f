"""How close a synthetic table is to the real one."""
