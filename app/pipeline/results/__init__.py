"""Outcomes of images, the files in them, their timings, and the cache of results.

Start reading in `outcomes.py`.
May import nothing of `app.pipeline` but this folder.
"""
