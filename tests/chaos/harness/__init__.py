"""What every attack needs: a server of some checkout, good neighbours, measurements, a verdict.

Start reading at `trial.py`. Imports the standard library and `tests.pictures` only.
"""
