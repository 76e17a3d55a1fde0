"""Use TLS on connections, and bound what a peer may cost before and beside its requests.

Start reading in `contexts.py`. It may import the modules of `app.connections` that stand before it,
but not `bare` and `http1`.
"""
