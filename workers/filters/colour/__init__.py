"""Filters that mix the colours of each pixel.

Start reading at `color_matrix.py`.
May import `workers.filters.base`, `workers.filters.arithmetic`, `workers.kernels`.
"""
