"""Sign messages as Standard Webhooks says, and send them to guarded addresses.

Start reading at `sender.py`; `app/jobs/` decides what is sent when, and keeps what is not sent yet.
May import the rooms above it in the order of `tests/unit/test_architecture.py`, and `models`.
"""
