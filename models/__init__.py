"""The shared vocabulary of all parts of Darkroom; it contains no HTTP, threads, torch or CUDA.

Start reading at `domain/job.py`. May import the standard library, numpy, Pillow, simplejpeg and
pydantic.
"""
