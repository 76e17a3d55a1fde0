"""Hostile files and bodies, built in code: small to describe, expensive to read.

Start reading at `jpeg.py`. Imports the standard library, NumPy and Pillow only.
"""
