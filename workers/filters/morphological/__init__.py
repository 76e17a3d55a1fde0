"""Erosion, dilation and what is made of both.

Start reading at `morphology.py`.
May import `workers.filters.base`, `workers.filters.arithmetic`, `workers.kernels`.
"""
