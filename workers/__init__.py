"""What executes: operations, micro-batcher, worker and engines. Knows nothing of HTTP."""
