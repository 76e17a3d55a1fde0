"""Handles connections: which are accepted, what each waits for, and how long it may.

Start reading in `entrance.py` (which ones are accepted), then `http1/protocol.py` (one connection).
It may import `app.admission`, `app.http.problems`, `app.http.departure` and `models`.
"""
