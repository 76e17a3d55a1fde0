"""The endpoints of the server: each lists its steps, and other folders do their work.

Start reading at `images/handler.py`, which all routes with images share.
May import the rooms above it in the order of `tests/unit/test_architecture.py`, and `models`.
"""
