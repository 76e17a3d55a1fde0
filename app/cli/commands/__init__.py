"""Commands of the command line, one file each, imported only when it is the one to run.

`app/cli/parser.py` lists and calls them. They may import whatever `app` may.
"""
