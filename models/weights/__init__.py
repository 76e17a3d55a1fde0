"""The weights that each network is served with, and the file that ships with Darkroom.

Start reading at `sources.py`; `README.md` is the card of the bundled weights.
May import `models.networks` and `models.settings`.
"""
