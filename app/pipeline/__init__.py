"""Process images, each from its bytes to its outcome, independent of HTTP.

Start reading at `pipeline.py`; `coding.py` decodes and encodes images, `memory.py` bounds their
memory, `results/` has their outcomes.
May import the rooms above it in the order of `tests/unit/test_architecture.py`, and `models`.
"""
