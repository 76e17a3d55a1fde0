"""The images of a bulk command: files, folders, patterns, lists, archives and URLs.

Start reading in `expansion.py`. It may import `app.archives`, `app.intake` and the errors of bulk.
"""
