"""Runs in the fork server and in decoder processes, never in the service.

Start reading at `decoder.py`; `sandbox.py` limits what it may do. The service imports nothing of
it. May import `app.decoders` and `models.codec`.
"""
