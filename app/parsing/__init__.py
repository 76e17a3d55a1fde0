"""Read JSON of strangers: structure is bounded before a parser allocates anything for it.

Start with `structure.py`. May import `models` and nothing else of `app`.
"""
