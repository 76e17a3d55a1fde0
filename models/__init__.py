"""The words every part of Darkroom speaks; knows nothing of HTTP, threads, torch or CUDA."""
