"""CUDA text that all families share: headers, the rows of a launch, the loader.

Start reading at `loader.py`; `headers/common.cuh` holds the parts that every kernel uses.
May import numpy; CUDA is text here, compiled by an engine or by the emulation of the tests.
"""
