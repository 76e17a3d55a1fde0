"""Ask the operating system what this process may use, and which other processes run.

Start reading in `cpu.py`. It may import the standard library only.
"""
