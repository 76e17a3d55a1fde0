"""Record what the service answers, and compare two records, so that a move can be proved harmless.

Start reading at `record.py`. Imports nothing of the service: it runs in any checkout.
"""
