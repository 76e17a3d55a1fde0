"""Filters that show edges.

Start reading at `gradient.py`.
May import `workers.filters.base`, `workers.filters.arithmetic`, `workers.filters.separable`,
`workers.kernels`, `blur`.
"""
