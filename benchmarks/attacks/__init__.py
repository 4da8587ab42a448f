"""Parts of benchmarks/attack.py: what each attack reaches, and how long it takes."""
