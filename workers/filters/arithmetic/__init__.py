"""Exact arithmetic that filters of several families share; it contains no filters."""
