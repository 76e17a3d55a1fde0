"""nvJPEG by its C API: the batched decoder and the encoder.

Start reading at `decoder.py`.
May import `models` and torch.
"""
