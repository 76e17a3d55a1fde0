"""Filters that turn an image black and white.

Start reading at `threshold.py`.
May import `workers.filters.base`, `workers.filters.arithmetic`, `workers.filters.separable`,
`workers.kernels`.
"""
