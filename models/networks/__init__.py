"""The networks that Darkroom can serve, without torch.

Start reading at `spec.py`; `registry.py` lists them all.
May import the standard library.
"""
