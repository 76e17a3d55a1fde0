"""The page at `/`: its HTML, styles and scripts, which browsers get without a build step.

Start reading at `static/main.js`; `files.py` reads the files.
May import nothing of `app`.
"""
