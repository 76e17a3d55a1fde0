"""The command line: the script, a parser, and the commands it calls.

Start reading at `script.py`.
May import all of `app` and `workers`.
"""
