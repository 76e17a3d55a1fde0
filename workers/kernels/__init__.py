"""CUDA text that all families share: headers, the rows of a launch, the loader.

Start reading at `loader.py`; `headers/common.cuh` holds the parts that every kernel uses.
May import `models` and numpy; CUDA is text here, which an engine or the tests' emulation compiles.
"""
