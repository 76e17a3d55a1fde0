"""What the service tells about itself: metrics, JSON logs, and the canary behind `/readyz`.

Start reading at `metrics.py`.
May import `models`.
"""
