"""The installed name of Darkroom: the wheel contains `app`, `models` and `workers` below it.

Start reading at `script.py`, which makes them importable under the names that they have here.
May import nothing before it has done that.
"""
