"""Write the answers of an inference request as tensors of the Open Inference Protocol.

Start reading in `inference_reply.py`.
May import what `app/responses` may.
"""
