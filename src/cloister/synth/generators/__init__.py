"""Generators: one file each, one signature (see `cloister.synth`)."""
