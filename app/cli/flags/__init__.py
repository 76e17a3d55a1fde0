"""Flags that several commands have, and what is made of their values.

Start reading in `source_flags.py`. It may import the sources of `app.bulk`, and
`models`.
"""
