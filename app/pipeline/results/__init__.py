"""What becomes of an image: outcomes, the files in them, their timings, and results that are kept.

Start reading in `outcomes.py`.
May import nothing of `app.pipeline` but this folder.
"""
