"""The HTTP face and the command line; knows nothing of torch or CUDA."""
