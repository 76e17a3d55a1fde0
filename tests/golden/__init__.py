"""The record of what the service answers; start reading at `record.py`."""
