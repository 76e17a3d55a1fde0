"""Emulation of the kernels: g++ compiles their text, and the CPU runs it, without a GPU."""
