"""The attacks, one short file for each kind; `python -m tests.chaos.attacks` runs them.

Start reading at `catalogue.py`. They may import `tests.chaos.harness` and `tests.chaos.hostile`.
"""
