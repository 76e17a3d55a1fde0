"""Decides which requests are admitted: permits, shares of clients, rate limits and API keys.

Start reading in `permits.py`; `counters.py` holds the counts that all front ends share.
It may import `models` and Starlette's types, and nothing else of `app`.
"""

from app.admission.limits import Amount, Limits
from app.admission.permit import Permit
from app.admission.permits import Admission
from app.admission.turn import Turn

__all__ = ["Admission", "Amount", "Limits", "Permit", "Turn"]
