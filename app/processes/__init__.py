"""The processes of a server: their number, the work of each, and the socket that they share.

Start reading at `plan.py`.
May import all of `app` but `app.cli.script`, and `workers.supervision`.
"""
