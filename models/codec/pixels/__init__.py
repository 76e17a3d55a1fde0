"""Turn a picture as its decoder leaves it into upright sRGB pixels of four modes.

Start reading in `stripes.py`.
May import what `models/codec` may.
"""
