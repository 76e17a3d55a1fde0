"""The networks that Darkroom can serve, without torch.

Start reading at `spec.py`; `registry.py` lists the built-in networks, and `folder.py` reads a
network of the operator's own.
May import `models.labels`, pydantic and the standard library.
"""
