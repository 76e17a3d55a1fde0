"""The commands of the command line, one file each; start reading in `parser.py`.

Each is imported only when it is the one to run. They may import whatever `app` may.
"""
