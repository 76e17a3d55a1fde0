"""Read JSON from untrusted clients: structure is bounded before a parser allocates anything for it.

Start reading at `structure.py`. May import `models` and nothing else of `app`.
"""
