"""Filters that map levels by the histogram of the image: autocontrast, equalize and CLAHE.

Start reading at `equalize.py`.
May import `workers.filters.base`, `workers.filters.arithmetic`, `workers.kernels`.
"""
