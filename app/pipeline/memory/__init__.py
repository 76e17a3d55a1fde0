"""Bound the memory of images on their way through the pipeline, before it is taken.

Start reading in `memory_need.py`.
May import nothing of `app.pipeline` but this folder.
"""
