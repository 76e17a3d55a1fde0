"""From accepted jobs to batches that an engine runs: queues, micro-batches, one worker.

Start reading at `worker.py`.
May import `models` and `workers.operations`.
"""
