"""How much CPU this process may use, as the kernel's control groups say it.

Start at `cgroup.py`. May import the standard library only.
"""
