"""Process images, each from its bytes to its outcome, independent of HTTP.

Start reading at `pipeline.py`; `memory.py` bounds what images take, `results/` is what they become.
May import the rooms above it in the order of `tests/unit/test_architecture.py`, and `models`.
"""
