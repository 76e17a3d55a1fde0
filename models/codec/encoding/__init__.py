"""Encode pixels as image files: options, costs, encoders, and the metadata that is kept.

Start reading in `encoder.py`.
May import what `models/codec` may.
"""
