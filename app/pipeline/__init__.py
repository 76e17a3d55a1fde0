"""Process images, each from its bytes to its outcome, independent of HTTP.

Start reading at `pipeline.py`; `coding.py` decodes and encodes images, `memory.py` bounds their
memory, `outcomes.py` has what becomes of them.
May import the rooms above it in the order of `tests/unit/test_architecture.py`, and `models`.
"""
