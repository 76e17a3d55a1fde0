"""Rules for URLs from clients, and for the addresses that these may lead to; connects to nothing.

Start reading at `url_policy.py`. May import `models`.
"""
