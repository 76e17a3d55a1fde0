"""Accept connections, and bound how many there are and how long each may wait.

Start reading in `entrance.py` (which ones are accepted), then `http1/protocol.py` (one connection).
It may import `app.admission`, `app.http.problems`, `app.http.departure` and `models`.
"""
