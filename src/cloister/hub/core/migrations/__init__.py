"""How the hub's tables came to their shape, step by step. `Database.migrate()` takes the steps that are missing."""
