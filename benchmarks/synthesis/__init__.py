"""Parts of benchmarks/synth.py."""
