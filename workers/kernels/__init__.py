"""Shared CUDA text of all families: headers, the layout of a launch, the loader.

Start reading at `loader.py`. May import numpy; CUDA is text here, compiled by an engine or by the
tests' emulation.
"""
