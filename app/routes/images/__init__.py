"""Steps that all image routes share, from the headers of a request to its answer.

Start reading in `handler.py`; `image_route.py` binds a handler to a path.
May import what `app/routes` may.
"""
