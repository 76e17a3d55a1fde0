"""The processes of one server: how many there are, what each runs, how they share a socket.

Start reading at `plan.py`.
May import all of `app` but `app.cli.script`, and `workers.supervision`.
"""
