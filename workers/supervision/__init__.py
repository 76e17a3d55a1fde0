"""Start workers and processes, watch over them, end them in order.

Start reading at `startup.py`.
May import `models` and `workers`; engines only inside functions.
"""
