"""Commands of the command line, one file each; start reading in `app/cli/parser.py`.

Each is imported only when it is the one to run. They may import whatever `app` may.
"""
