"""Side-by-side measurements, each one command (`python -m benchmarks.NAME`) that prints a JSON line a figure."""
