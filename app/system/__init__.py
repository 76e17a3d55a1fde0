"""Ask the operating system what a terminal can do, and for folders of this process.

Start reading in `own_folder.py`. It may import psutil and the standard library only.
"""
