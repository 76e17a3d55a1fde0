"""Read the files inside ZIP and TAR archives from untrusted clients, and write ZIPs piece by piece.

Start reading at `reading.py`. May import `models` and nothing else of `app`.
"""
