"""Work through the chunks of jobs, beside the other processes that do so.

Start reading in `runner.py`.
May import what `app/jobs` may.
"""
