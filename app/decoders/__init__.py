"""Decode image files in processes that can be killed, sandboxed and replaced.

Start reading at `pool.py`, then `child.py`, which runs inside these processes.
It may import `models`, msgspec and numpy, and nothing else of `app`.
"""
