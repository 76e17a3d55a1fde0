"""Write docs/scale.md and its charts from the result of the simulation.

Start reading in `page.py`; `comparisons.py` and `forecasts.py` write its longer sections.
It may import the rest of `tools`.
"""
