"""Serve connections: bound how many there are, how long each may wait, and what a request may have.

Start reading in `protocol.py`, which serves one connection.
It may import `app.admission`, `app.http` and `models`.
"""
