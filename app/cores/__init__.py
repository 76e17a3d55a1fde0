"""Reads how much CPU time and memory the kernel's control groups allow this process.

Start reading in `cgroup.py` (CPU) or `memory.py`. It may import the standard library only.
"""
