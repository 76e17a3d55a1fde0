"""Filters that smooth and keep edges: ranks, bilateral, guided, non-local means.

Start reading at `median.py`.
May import `workers.filters.base`, `workers.filters.arithmetic`, `workers.kernels`, `blur`.
"""
