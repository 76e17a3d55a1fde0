"""The page at `/`: its HTML, styles and scripts, which browsers get as they lie in `static/`.

Start reading at `static/main.js`; `files.py` reads the files.
May import nothing of `app`.
"""
