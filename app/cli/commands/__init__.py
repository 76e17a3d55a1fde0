"""Commands of the command line, one file each, imported only when it is the one to run.

`command.py` is their interface. `app/cli/catalogue.py` lists them, and `app/cli/parser.py` calls
them. They may import whatever `app` may.
"""
