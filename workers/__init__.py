"""What executes: operations, the micro-batcher, the worker and its engines. Knows nothing of HTTP."""
