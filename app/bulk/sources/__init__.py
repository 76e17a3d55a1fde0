"""List the images of a bulk command: files, folders, buckets, patterns, lists, archives, URLs.

Start reading in `expansion.py`. It may import `app.archives`, `app.storage`, `app.intake` and the
errors of bulk.
"""
