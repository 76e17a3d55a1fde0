"""The media types of answers."""

JSON = "application/json"
JSON_LINES = ("application/x-ndjson", "application/jsonl")
EVENTS = "text/event-stream"
ZIP = "application/zip"
MULTIPART = "multipart/mixed"

STREAMS = (*JSON_LINES, EVENTS, ZIP, MULTIPART)
"""Containers of any number of answers, which are sent as they finish."""

IMAGE = "image/*"
"""The bytes of one image, in whatever format it is encoded."""
