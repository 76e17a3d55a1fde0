"""Kernels that NVRTC has compiled, launched on the current stream.

Start reading at `modules.py`; tests put an emulation in the place of `launcher.py`'s protocol.
May import `models`, `workers.kernels`, torch and CuPy.
"""
