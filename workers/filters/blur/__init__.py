"""Filters that blur: Gaussian, box and motion.

Start reading at `gaussian_blur.py`.
May import `workers.filters.base`, `workers.filters.arithmetic`, `workers.filters.separable`,
`workers.kernels`.
"""
