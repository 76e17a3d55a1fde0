"""Rank filters: any percentile of the square around each pixel, and the median.

Start reading at `ranking.py`.
May import `workers.filters.base`, `workers.filters.arithmetic`, `workers.kernels`.
"""
