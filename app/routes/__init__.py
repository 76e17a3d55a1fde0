"""The endpoints of the server: each lists its steps, and other folders do their work.

Start reading at `images.py`, whose `handle` all endpoints with images share.
May import the rooms above it in the order of `tests/unit/test_architecture.py`, and `models`.
"""
