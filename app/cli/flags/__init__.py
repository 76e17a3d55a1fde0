"""Flags that several commands have, and what is made of their values.

Start reading in `source_flags.py`. It may import the engines and sources of `app.bulk`, and
`models`.
"""
