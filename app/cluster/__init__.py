"""A Darkroom on Ray Serve: front ends and workers as deployments of one application.

Start reading at `application.py`. May import the rest of `app` and `workers`; Ray only where a
function of this folder uses it.
"""
