"""The file of failures beside a folder of results: records of images that have no result."""

from pathlib import Path

import msgspec


def beside(folder: Path) -> Path:
    """Return the file of failures for a folder of results: `made.failed.jsonl` beside `made`."""
    folder = folder.resolve()
    return folder.with_name(f"{folder.name}.failed.jsonl")


def write_failures(lines: Path, path: Path) -> None:
    """Write the records of JSON Lines that are errors."""
    with lines.open("rb") as records, path.open("xb") as failed:
        for line in records:
            if msgspec.json.decode(line).get("status") != "ok":
                failed.write(line)
