"""Filters that sharpen, Pillow's presets, and convolutions with weights of the client's own.

Start reading at `unsharp_mask.py`.
May import `workers.filters.base`, `workers.filters.arithmetic`, `workers.filters.separable`,
`workers.kernels`.
"""
