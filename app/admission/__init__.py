"""Decide which requests are admitted: permits, shares of clients, rate limits and API keys.

Start reading in `permits.py`; `counters.py` has the counts that all front ends share, and `line.py`
the admitted images and their work. `semaphore.py` shares out what other folders limit.
It may import `models` and Starlette's types, and nothing else of `app`.
"""

from app.admission.permits import Admission, Limits, Permit, StreamPermits

__all__ = ["Admission", "Limits", "Permit", "StreamPermits"]
