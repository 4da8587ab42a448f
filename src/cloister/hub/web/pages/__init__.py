"""Pages: one file per subject, each with a module-level `router`. `create_app` finds them by itself."""
