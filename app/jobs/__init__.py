"""Run jobs: take a manifest of images, work through it in the background, keep its results.

Start reading at `jobs.py`, which makes jobs of requests; `store.py` is the database, and
`runner.py` does the work.
May import the rooms above it in the order of `tests/unit/test_architecture.py`, and `models`.
"""
