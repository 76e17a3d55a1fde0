"""Limits of what is fetched: which URLs are asked for, and how much an origin may send.

Start with `url_rules.py`. May import `models` and `app.urls.address_policy`, nothing else of `app`.
"""
