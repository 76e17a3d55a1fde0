"""From the answers of a request to the bytes that are sent: JSON, streams, archives.

Start reading at `complete.py`.
May import the rooms above it in the order of `tests/unit/test_architecture.py`, and `models`.
"""
