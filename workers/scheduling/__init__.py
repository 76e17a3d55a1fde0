"""Form batches of accepted jobs, which an engine runs: queues, micro-batches, a worker.

Start reading at `worker.py`.
May import `models` and `workers.operations`.
"""
