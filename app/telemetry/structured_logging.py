"""Write logs as JSON lines to standard error, in one format for Darkroom and for uvicorn."""

import logging.config

from pythonjsonlogger.core import RESERVED_ATTRS


def configure(level: str) -> None:
    """Send the records of all loggers from `level` upwards to standard error as JSON."""
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
                }
            },
            "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "json"}},
            "root": {"level": level.upper(), "handlers": ["stderr"]},
            "loggers": {
                "uvicorn.access": {"level": "WARNING"},
                "httpx": {"level": "WARNING"},
            },
        }
    )
