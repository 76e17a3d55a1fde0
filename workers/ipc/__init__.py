"""Communication between front ends and workers: frames on sockets, pixels in shared memory.

Start reading at `frames.py`. May import `models`, `workers.scheduling` and `workers.operations`.
"""
