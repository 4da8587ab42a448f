"""Migrations of the hub's tables, in order. `Database.migrate()` applies the missing ones."""
