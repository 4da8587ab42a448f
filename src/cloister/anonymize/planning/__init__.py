"""From text and files to a release: models and hierarchies in words, sources, the plan, the terminal."""
