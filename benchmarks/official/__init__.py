"""What `benchmarks/official.py` consists of: an engine that times two sides in turns, and one file per family of solvers."""
