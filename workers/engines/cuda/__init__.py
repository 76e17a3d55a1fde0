"""The engine of an NVIDIA GPU. Torch owns all device memory; CuPy launches on torch's streams.

Start reading at `engine.py`.
May import `models`, the rooms of `workers` that stand before the engines, torch and CuPy.
"""
