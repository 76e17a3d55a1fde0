"""Connections: what happens to a client's bytes before a request, and after its answer.

Start reading in `protocol.py` (one connection), then `entrance.py` (which connections are taken).
It may import `app.admission`, `app.http.problems` and `models`, nothing else of `app`.
"""
