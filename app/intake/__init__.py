"""Read a request: its body as a list of items, its options as what is wanted of each item.

Start reading at `request_items.py`.
May import the rooms above it in the order of `tests/unit/test_architecture.py`, `models`, and the
declarations of `workers`.
"""
