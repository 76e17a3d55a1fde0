"""Bounded hostile programs against a real server on 127.0.0.1; run by hand, not by pytest.

Start reading at `attacks/__main__.py`. Imports nothing of `app`, `models` or `workers`, so that
any checkout can be attacked with the same program; `fuzz_codec` alone drives `models.codec` itself.
"""
