"""Decode one image after another in a sandbox; the service itself never runs this code.

Start reading at `decoder.py`; `sandbox.py` limits what it may do. The service imports nothing of
it. May import `app.decoders` and `models.codec`.
"""
