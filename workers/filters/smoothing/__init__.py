"""Filters that smooth and keep edges: bilateral, guided, non-local means.

Start reading at `bilateral.py`.
May import `workers.filters.base`, `workers.filters.arithmetic`, `workers.filters.separable`,
`workers.kernels`.
"""
