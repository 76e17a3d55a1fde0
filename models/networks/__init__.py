"""The networks that Darkroom can serve: a file for each, without torch.

Start reading at `spec.py`, then `resnet18.py`. `registry.py` lists them all.
May import the standard library.
"""
