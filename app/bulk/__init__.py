"""Bulk work of the command line: many images, in order, continued after an interruption.

Start reading in `run.py`. It may import all of `app` but the command line, and the Python client,
which sends the images.
"""
