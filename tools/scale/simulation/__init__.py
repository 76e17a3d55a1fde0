"""Simulate one host and a cluster in virtual time, around the real batcher, router and forecast.

Start reading in `fleet.py` (a cluster) and `gpu_host.py` (one host); `clock.py` has the events.
It may import `models`, `workers` and `app.admission`, and nothing else of `tools`.
"""
