"""Read a request: its body as a list of items, its options as what is wanted of each item.

Start reading at `request_items.py`.
May import `app.telemetry`, `app.http` and `models`, and the declarations of `workers`.
"""
