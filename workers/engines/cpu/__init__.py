"""The engine of a machine without a GPU: the specification that kernels are tested against.

Start reading at `engine.py`.
May import `models`, the rooms of `workers` that stand before the engines, and torch.
"""
