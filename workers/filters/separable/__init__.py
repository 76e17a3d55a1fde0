"""Gaussian weights and sums, banded matrices, and separable kernels; it contains no filters.

Start reading at `gaussian.py`; `separable.cuh` draws how a GPU computes both passes at once.
May import `workers.filters.arithmetic` and `workers.kernels`.
"""
