"""Write the answers of a request as bytes: JSON, streams, archives.

Start reading at `render` in `answers.py`.
May import the rooms above it in the order of `tests/unit/test_architecture.py`, and `models`.
"""
