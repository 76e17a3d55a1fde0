"""What answers the images of a command: one process, several, a server, or a Ray cluster.

Start reading in `engine.py`. It may import all of `app` but the command line and the session.
"""
