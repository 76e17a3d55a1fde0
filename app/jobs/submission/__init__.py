"""Make a job of a request: its body, or what storage lists, becomes a manifest on disk.

Start reading in `acceptance.py`.
May import what `app/jobs` may.
"""
