"""Handles connections: a client's bytes before they are a request, and the end of a connection.

Start reading in `protocol.py` (one connection), then `entrance.py` (which ones are accepted).
It may import `app.admission`, `app.http.problems` and `models`, nothing else of `app`.
"""
