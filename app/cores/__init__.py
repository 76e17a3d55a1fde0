"""How much CPU and memory this process may use, as the kernel's control groups say it.

Start at `cgroup.py` for CPU, `memory.py` for memory. May import the standard library only.
"""
