"""Simulate the scheduler at a scale that no test can have, and write docs/scale.md.

Start reading in `__main__.py`; `measured.py` says what is taken from measurements, `validation.py`
compares, `predictions.py` lists the scenarios, and `sizing.py` computes what a day needs.
It may import anything; nothing imports it but its tests.
"""
