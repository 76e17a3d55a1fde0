"""A load generator for `darkroom bench` and `darkroom tune`: a lean client, and windows of time.

Start reading in `step.py`.
May import all of `app`.
"""
