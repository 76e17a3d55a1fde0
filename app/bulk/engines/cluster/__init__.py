"""Answer the images of a bulk command by actors on the nodes of a Ray cluster.

Start reading in `engine.py`. It may import the other engines. Ray is imported in functions alone,
when a command has `--ray`.
"""
