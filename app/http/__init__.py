"""Basics of HTTP: negotiation, problem details, options, the deadline and the client of a request.

Start reading at `problems.py`.
May import `app.telemetry` and `models`; it contains nothing about images.
"""
