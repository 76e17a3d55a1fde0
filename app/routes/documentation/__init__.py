"""The OpenAPI document and the documentation page that is written from it.

Start reading in `openapi.py`.
May import nothing of `app.routes` but this folder.
"""
