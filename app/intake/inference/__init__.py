"""From a request of the Open Inference Protocol to its images and what is wanted of them.

Start reading in `inference_request.py`.
May import what `app/intake` may.
"""
