"""Serve connections: bound their number, the time that each may wait, and the size of requests.

Start reading in `protocol.py`, which serves one connection.
It may import `app.admission`, `app.http` and `models`.
"""
