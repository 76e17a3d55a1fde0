"""Which URLs clients may name, and which addresses these may lead to; connects to nothing.

Start reading at `url_policy.py`.
May import `models`.
"""
