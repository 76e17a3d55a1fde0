"""The vocabulary of both sides of the backend: images, jobs, outcomes, deadlines, errors.

Start reading at `job.py`. May import the standard library and numpy.
"""
