"""Filters that move pixels or change the size of an image.

Start reading at `resize.py`.
May import `workers.filters.base`, `workers.filters.arithmetic`, `workers.kernels`,
`workers.preprocess`.
"""
