"""Filters for visual effects: mosaics, vignettes, noise.

Start reading at `pixelate.py`. May import `workers.filters.base`, `workers.filters.arithmetic`,
`workers.kernels`.
"""
