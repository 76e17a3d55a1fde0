"""Hold connections that have no transport and no protocol: silent ones, and some refused ones.

Start reading in `silent_connections.py`. It may import the other modules of `app.connections`, but
not `http1`.
"""
