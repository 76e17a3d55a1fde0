"""Write the record of an image: a line of JSON for programs, words for a person at a terminal."""

import json

import msgspec

from app.responses.records import line
from app.system.terminal import Style, printable, styled
from models.api.schemas import Record

OF_HTTP = {"type", "title", "status", "instance", "request_id", "item_index"}
"""Members of an error that have a meaning in HTTP alone; `code` and `detail` remain."""

SHOWN = 5
"""Labels on a line for people."""


def json_line(made: Record) -> bytes:
    """Return the record as one line of JSON, the same as in an answer of the server.

    Only errors are shorter: they have no member of HTTP.
    """
    made = _readable(made)
    if made.error is None:
        return line(made)
    return made.model_dump_json(exclude_none=True, exclude={"error": OF_HTTP}).encode() + b"\n"


def with_file(line: bytes, file: str | None) -> bytes:
    """Return a record, a line of JSON, with the file that its image was written to."""
    if file is None:
        return line
    return line.removesuffix(b"}\n") + b',"file":' + json.dumps(readable(file)).encode() + b"}\n"


def with_warning(line: bytes, warning: str) -> bytes:
    """Return a record, a line of JSON, with the warning about the labels in it."""
    return line.removesuffix(b"}\n") + b',"warning":' + json.dumps(warning).encode() + b"}\n"


def record_of(line: bytes) -> Record:
    """Return the record of a line; the members that `json_line` leaves out of errors are empty."""
    made = msgspec.json.decode(line)
    for name in ("file", "warning"):
        made.pop(name, None)
    if error := made.get("error"):
        made["error"] = {"type": "", "title": "", "status": 0, **error}
    return Record.model_validate(made)


def file_of(line: bytes) -> str | None:
    """Return the file in the record of a line."""
    file = msgspec.json.decode(line).get("file")
    return file if isinstance(file, str) else None


def human_line(made: Record, target: str | None = None, *, colours: bool = False) -> str:
    """Return the record as a line for people; `target` is where its image was written."""
    name = styled(_plain(made.source or str(made.index)), Style.BOLD, on=colours)
    if made.error is not None:
        return f"{name}  {styled(_plain(made.error.detail), Style.RED, on=colours)}\n"
    if made.image is not None:
        size = f"{made.image.width} × {made.image.height}, {made.image.bytes:,} bytes"
        return f"{name} → {_plain(target or 'standard output')}  {size}\n"
    if made.predictions is not None:
        labels = [f"{each.label} {_score(each.score)}" for each in made.predictions[:SHOWN]]
        return f"{name}  {styled(_plain(', '.join(labels)), Style.GREEN, on=colours)}\n"
    return f"{name}  done; --json prints the values\n"


def readable(name: str) -> str:
    r"""Return the name of a file as valid Unicode: bytes that are not UTF-8 are escaped (`\xff`).

    Linux allows any bytes in names, and Python keeps them as surrogates, which JSON cannot have.
    """
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _readable(made: Record) -> Record:
    """Return the record with a readable name, also in the detail of its error."""
    if made.source is not None:
        made = made.model_copy(update={"source": readable(made.source)})
    if made.error is not None:
        error = made.error.model_copy(update={"detail": readable(made.error.detail)})
        made = made.model_copy(update={"error": error})
    return made


def _score(score: float) -> str:
    """Return a probability in percent, and anything else as a number."""
    return f"{score:.1%}" if 0 <= score <= 1 else f"{score:.3g}"


def _plain(text: str) -> str:
    return printable(readable(text))
