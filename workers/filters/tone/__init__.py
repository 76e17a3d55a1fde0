"""Filters that map each level to a level, independent of where the pixel is.

Start reading at `tables.py`.
May import `workers.filters.base`, `workers.filters.arithmetic`, `workers.kernels`.
"""
