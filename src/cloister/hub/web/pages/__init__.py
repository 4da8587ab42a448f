"""Pages: one file a subject, each with a module-level `router`. `create_app` finds them by itself."""
