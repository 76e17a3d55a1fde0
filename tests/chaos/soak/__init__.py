"""Mixed traffic for a long time with faults injected; `python -m tests.chaos.soak` runs it.

Start reading at `__main__.py`. May import `tests.chaos.harness` and `tests.chaos.hostile`.
"""
