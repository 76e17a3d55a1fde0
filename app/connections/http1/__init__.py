"""Parse the requests of one connection within its limits, answer them, and end it properly.

Start reading in `protocol.py`, uvicorn's protocol for httptools with limits.
It may import `app.connections`, `app.admission`, `app.http.problems` and `models`.
"""
