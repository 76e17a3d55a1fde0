"""What answers the images of a bulk command: this process, several processes, or a server.

Start reading in `engine.py`. It may import all of `app` but the command line and the session.
"""
