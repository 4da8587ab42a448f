"""Parts of benchmarks/deep.py: the networks, their steps, and the images."""
