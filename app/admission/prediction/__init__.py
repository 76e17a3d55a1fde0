"""Predict when admitted work will be completed, by what images cost and how fast the server is.

Start reading in `forecast.py`.
May import `app.admission.counts` and `app.admission.line.line`.
"""
