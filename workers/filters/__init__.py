"""All filters, a folder for each family: their specifications and their CUDA text side by side.

Start reading at `registry.py`.
May import `models` and `workers.kernels`.
"""
