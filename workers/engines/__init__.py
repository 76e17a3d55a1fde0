"""The engines, which compute micro-batches: the only files that import torch or CuPy.

Start reading at `cpu/engine.py`; `builder.py` makes the torch module of a network.
May import `models` and the rooms of `workers` that stand before it.
"""
