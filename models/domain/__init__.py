"""The words that both sides of the backend speak: images, jobs, outcomes, deadlines, errors.

Start reading at `job.py`.
May import the standard library and numpy.
"""
