"""Basics of HTTP: negotiation, problem details, options, the lifetime of a request.

Start reading at `problems.py`.
May import `app.telemetry` and `models`; it contains nothing about images.
"""
