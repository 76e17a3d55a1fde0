"""Ask the operating system which other processes run, and what a terminal can do.

Start reading in `processes.py`. It may import the standard library only.
"""
