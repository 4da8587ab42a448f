"""One file a step, in the order of their numbers. A step that was published is never changed."""
