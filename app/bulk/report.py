"""Write the record of an image: a line of JSON for programs, words for a person at a terminal."""

from typing import TYPE_CHECKING

import msgspec

from app.system.terminal import Style, printable, styled

if TYPE_CHECKING:
    from darkroom_client import ImageResult  # httpx takes time, which `--help` has not

SHOWN = 5
"""Labels on a line for people."""


def json_line(record: "ImageResult", **more: str) -> bytes:
    """Return a record as a line of JSON: the members of a server's record, then `more` texts."""
    line = msgspec.json.encode(record)
    if more:
        line = line[:-1] + b"," + msgspec.json.encode(more)[1:]
    return line + b"\n"


def human_line(line: bytes, *, colours: bool = False) -> str:
    """Return a record, a line of JSON, as a line for people."""
    made = msgspec.json.decode(line)
    name = styled(printable(made["source"]), Style.BOLD, on=colours)
    if error := made.get("error"):
        return f"{name}  {styled(printable(error['detail']), Style.RED, on=colours)}\n"
    if image := made.get("image"):
        size = f"{image['width']} × {image['height']}, {image['bytes']:,} bytes"
        return f"{name} → {printable(made.get('file', 'standard output'))}  {size}\n"
    if found := made.get("predictions"):
        labels = ", ".join(f"{each['label']} {_score(each['score'])}" for each in found[:SHOWN])
        return f"{name}  {styled(printable(labels), Style.GREEN, on=colours)}\n"
    return f"{name}  done; --json prints the values\n"


def readable(name: str) -> str:
    r"""Return the name of a file as valid Unicode: bytes that are not UTF-8 are escaped (`\xff`).

    Linux allows any bytes in names, and Python keeps them as surrogates, which JSON cannot have.
    """
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _score(score: float) -> str:
    """Return a probability in percent, and anything else as a number."""
    return f"{score:.1%}" if 0 <= score <= 1 else f"{score:.3g}"
