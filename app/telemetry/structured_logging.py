"""Write logs to standard error in one format for Darkroom and for uvicorn: JSON, or text."""

import logging.config
import sys

from pythonjsonlogger.core import RESERVED_ATTRS

from app.system.terminal import is_terminal


def configure(level: str, format_: str = "auto") -> None:
    """Send the records of all loggers from `level` upwards to standard error.

    `format_` is `json`, `text`, or `auto`: text if standard error is a terminal, else JSON.
    """
    is_text = format_ == "text" or (format_ == "auto" and is_terminal(sys.stderr))
    logging.config.dictConfig(
        {
            "version": 1,
            "disable_existing_loggers": False,
            "formatters": {
                "json": {
                    "()": "pythonjsonlogger.json.JsonFormatter",
                    "format": "%(asctime)s %(levelname)s %(name)s %(message)s",
                    "reserved_attrs": [*RESERVED_ATTRS, "color_message"],
                    "rename_fields": {
                        "asctime": "time",
                        "levelname": "level",
                        "name": "logger",
                    },
                },
                "text": {"()": "app.telemetry.human_log.HumanFormatter"},
            },
            "handlers": {
                "stderr": {
                    "class": "logging.StreamHandler",
                    "formatter": "text" if is_text else "json",
                }
            },
            "root": {"level": level.upper(), "handlers": ["stderr"]},
            "loggers": {
                "uvicorn.access": {"level": "WARNING"},
                "httpx": {"level": "WARNING"},
            },
        }
    )
