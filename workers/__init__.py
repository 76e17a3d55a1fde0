"""The executing side: operations, filters, micro-batcher, worker, engines and their processes.

Start reading at `scheduling/worker.py`.
May import `models`; it contains no HTTP.
"""
