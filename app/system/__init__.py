"""Asks the operating system: how much CPU time and memory this process may use, which ones live.

Start reading in `cpu.py` or `memory.py`. It may import the standard library only.
"""
