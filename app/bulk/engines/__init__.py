"""Compute the images of a bulk command: in one process, in several, on a server or on Ray.

Start reading in `engine.py`. It may import all of `app` but the command line and the session.
"""
