"""Read a request of the Open Inference Protocol: its images and the outputs it asks for.

Start reading in `inference_request.py`.
May import what `app/intake` may.
"""
