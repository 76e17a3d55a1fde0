"""From the body of a request to a list of items and to what is wanted of them.

Start reading at `request_items.py`.
May import `app.telemetry`, `app.http` and `models`, and the declarations of `workers`.
"""
