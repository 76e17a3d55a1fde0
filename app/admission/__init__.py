"""Decides which requests are let in: permits, shares of clients, rate limits and API keys.

Start reading in `permits.py`; `counters.py` holds the counts that all front ends share.
It may import `models` and the standard library, and nothing else of `app`.
"""

from app.admission.permits import Admission, Amount, Permit

__all__ = ["Admission", "Amount", "Permit"]
