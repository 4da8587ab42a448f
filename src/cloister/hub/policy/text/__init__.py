"""The YAML text of a policy: read it, write it, edit it in a form, test it."""
