"""Morphology: erosion, dilation and the operations that combine both.

Start reading at `morphology.py`. May import `workers.filters.base`, `workers.filters.arithmetic`,
`workers.kernels`.
"""
