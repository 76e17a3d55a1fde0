"""Generate load for `darkroom bench` and `darkroom tune`: a small client, and timed windows.

Start reading in `step.py`.
May import all of `app`.
"""
