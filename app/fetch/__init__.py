"""Fetch image URLs within bounds of time, size and concurrency, from public addresses only.

Start reading at `fetcher.py`.
May import the rooms above it in the order of `tests/unit/test_architecture.py`, and `models`.
"""
