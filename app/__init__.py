"""The HTTP front end, the fetching of URLs, and the command line.

Start reading at `main.py`, or at `cli/parser.py` for the command line.
May import `models`, `workers.operations` and `workers.filters`.
"""
