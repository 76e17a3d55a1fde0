"""Form batches of accepted jobs, which an engine runs: queues, micro-batches, one worker.

Start reading at `worker.py`.
May import `models` and `workers.operations`.
"""
