"""The engines: the only files that import torch or CuPy."""
