"""Parses the requests of one connection within its limits, answers them, and ends it properly.

Start reading in `protocol.py`, uvicorn's protocol for httptools with limits.
It may import `app.connections`, `app.admission`, `app.http.problems` and `models`.
"""
