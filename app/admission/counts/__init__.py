"""Counts that all front ends of a server share, and the limits that are kept by them.

Start reading in `counters.py`; `fields.py` names what is counted.
May import nothing of `app.admission` but this folder.
"""
