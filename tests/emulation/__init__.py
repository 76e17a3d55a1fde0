"""The kernels' own text, compiled by g++ and run on the CPU: their bytes without a GPU."""
