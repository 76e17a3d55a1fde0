"""The engine of an NVIDIA GPU. Torch owns all device memory; CuPy launches on torch's streams."""
