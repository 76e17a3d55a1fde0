"""The fair line: images of all clients wait in it for their turn.

Start reading in `line.py`.
May import nothing of `app.admission` but this folder.
"""
