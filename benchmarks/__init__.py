"""Benchmarks: `python -m benchmarks`. See README.md."""
