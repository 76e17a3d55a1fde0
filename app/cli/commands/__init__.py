"""Commands of the command line, a file for each, imported only when it runs.

`app/cli/parser.py` lists and calls them. They may import whatever `app` may.
"""
