"""The bodies of HTTP requests and answers as pydantic models.

Start reading at `schemas.py`.
May import pydantic and `models.domain`.
"""
