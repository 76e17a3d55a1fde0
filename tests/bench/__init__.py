"""Benchmarks: each has its method in its docstring and ends with one line of JSON."""
