"""Filters that map the levels of an image, by a table or by its histogram.

Start reading at `brightness.py`.
May import `workers.filters.base`, `workers.filters.arithmetic`, `workers.kernels`.
"""
