"""Filters that smooth and keep edges: rank filters, bilateral, guided, non-local means.

Start reading at `median.py`. May import `workers.filters.base`, `workers.filters.arithmetic`,
`workers.kernels`, `blur`.
"""
