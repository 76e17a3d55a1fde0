"""Workers on other hosts: a backend that reaches them through Ray Serve, and what a replica holds.

Start reading at `backend.py`. May import `models`, `workers.scheduling`, `workers.ipc` and
`workers.backends`; Ray only in `serve_handle.py`, which imports it when it is used.
"""
