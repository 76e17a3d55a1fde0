"""The endpoints of `/jobs`: make jobs, show their state, send their results, end them.

Start reading in `endpoints.py`; `app/jobs/` does the work.
May import what `app/routes` may.
"""
