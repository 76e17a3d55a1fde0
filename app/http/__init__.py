"""Basics of the protocol: negotiation, problem details, options, the life of a request.

Start reading at `problems.py`.
May import `app.telemetry` and `models`; it contains nothing about images.
"""
