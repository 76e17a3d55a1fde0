"""Write logs to standard error in one format for Darkroom and for uvicorn: JSON, or text."""

import json
import logging
import sys
from datetime import datetime

from pythonjsonlogger.core import RESERVED_ATTRS
from pythonjsonlogger.json import JsonFormatter

from app.system.terminal import Style, has_colours, is_terminal, printable, styled


def configure(level: str, format_: str = "auto") -> None:
    """Send the records of all loggers from `level` upwards to standard error.

    `format_` is `json`, `text`, or `auto`: text if standard error is a terminal, else JSON.
    """
    is_text = format_ == "text" or (format_ == "auto" and is_terminal(sys.stderr))
    names = {"asctime": "time", "levelname": "level", "name": "logger"}
    handler = logging.StreamHandler()
    handler.setFormatter(
        HumanFormatter()
        if is_text
        else JsonFormatter(
            "%(asctime)s %(levelname)s %(name)s %(message)s",
            reserved_attrs=[*RESERVED_ATTRS, "color_message"],
            rename_fields=names,
        )
    )
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for name in ("uvicorn.access", "httpx"):
        logging.getLogger(name).setLevel(logging.WARNING)


LEVELS = {
    logging.DEBUG: Style.DIM,
    logging.INFO: Style.GREEN,
    logging.WARNING: Style.YELLOW,
    logging.ERROR: Style.RED,
    logging.CRITICAL: Style.RED,
}

HIDDEN = frozenset({*RESERVED_ATTRS, "color_message", "message", "asctime"})
"""Attributes that every record has. All other attributes are values that the caller has added, or
private values of a library, which begin with an underscore: Ray adds one to every record."""


class HumanFormatter(logging.Formatter):
    """Formatter of lines such as `14:03:07 INFO     listening on http://127.0.0.1:8000`."""

    def __init__(self, colours: bool | None = None) -> None:
        super().__init__()
        self._colours = has_colours(sys.stderr) if colours is None else colours

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line, and the traceback of an exception below it."""
        time = datetime.fromtimestamp(record.created).strftime("%H:%M:%S")
        level, style = f"{record.levelname:8}", LEVELS.get(record.levelno, Style.BOLD)
        line = f"{self._styled(time)} {self._styled(level, style)} {printable(record.getMessage())}"
        values = " ".join(
            f"{name}={_one_word(str(value))}"
            for name, value in vars(record).items()
            if name not in HIDDEN and not name.startswith("_")
        )
        if values:
            line += "  " + self._styled(printable(values))
        if record.exc_info:
            line += "\n" + printable(self.formatException(record.exc_info), lines=True)
        return line

    def _styled(self, text: str, style: Style = Style.DIM) -> str:
        return styled(text, style, on=self._colours)


def _one_word(value: str) -> str:
    """Return a value in quotes if it has spaces or quotes: in a path they could name other values.

    The text in the quotes is escaped as in JSON.
    """
    if value.split() == [value] and '"' not in value:
        return value
    return json.dumps(value, ensure_ascii=False)
