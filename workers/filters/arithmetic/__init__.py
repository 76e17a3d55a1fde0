"""Exact arithmetic that filters of several families share; it contains no filters.

Start reading at `correlate.py`. May import `models` and `workers.kernels`.
"""
