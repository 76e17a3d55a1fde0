"""Report on the running service: metrics, JSON logs, and the canary behind `/readyz`.

Start reading in `metrics.py`.
It may import `app.admission`, `models` and the declarations of `workers`.
"""
