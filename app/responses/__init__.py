"""Turn answers into bytes of HTTP bodies.

Start with `inline_images.py`. May import `models` and nothing else of `app`.
"""
