"""Records of images that failed: where they are kept, and how these are tried again."""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from app.bulk.errors import WrongUsage
from app.bulk.report import readable
from app.system.terminal import printable

T = TypeVar("T")

SHOWN = 3
"""Failures that are shown at the end of a command."""


def beside(folder: Path) -> Path:
    """Return the file of failures for a folder of results: `made.failed.jsonl` beside `made`."""
    folder = folder.resolve()
    return folder.with_name(f"{folder.name}.failed.jsonl")


def unfinished(file: Path) -> list[Path]:
    """Return the partial files of commands for the records `file` that have not ended."""
    file = file.resolve()
    names = (each for each in file.parent.glob("*.partial"))
    return sorted(each for each in names if each.name.startswith(f"{file.name}."))


def check_ended(file: Path) -> None:
    """Raise WrongUsage if another command that writes the finished records `file` has not ended.

    Call it before a retry begins. A command that was killed while it replaced the file may have
    noted what its own records come from, and the file would still be the one before.
    """
    if others := unfinished(file):
        raise WrongUsage(
            f"--retry-failed: another command for {file} has not ended; start that one again, or "
            f"remove {others[0]} to give it up"
        )


def shown(lines: Path, place: Path, n: int) -> str:
    """Return lines about `n` failures: where their reasons are, and the first of them.

    `lines` are records, and `place` is the file that the user finds them in.
    """
    text = f"darkroom: {n} failed; their reasons are in {place}"
    with lines.open("rb") as records:
        errors = (msgspec.json.decode(line) for line in records if _is_error(line))
        for each in itertools.islice(errors, SHOWN):
            reason = each.get("error", {}).get("detail", "")
            text += f"\n  {printable(each['source'])}: {printable(reason)}"
    return f"{text}\n  …" if n > SHOWN else text


def write_failures(lines: Path, path: Path) -> None:
    """Write the records of JSON Lines that are errors."""
    with lines.open("rb") as records, path.open("xb") as failed:
        failed.writelines(line for line in records if _is_error(line))


def failed_names(lines: Path) -> Iterator[str]:
    """Yield the names of the images whose records are errors, in their order."""
    with lines.open("rb") as records:
        for line in records:
            if _is_error(line):
                yield msgspec.json.decode(line)["source"]


def only_failed(images: Iterator[T], name: Callable[[T], str], lines: Path) -> Iterator[T]:
    """Yield the images that failed, by the records in `lines`, which have the same order.

    WrongUsage if one of them is not among the images any more.
    """
    names = failed_names(lines)
    wanted = next(names, None)
    for each in images:
        if wanted is None:
            return
        if readable(name(each)) == wanted:
            yield each
            wanted = next(names, None)
    if wanted is not None:
        raise WrongUsage(
            f"--retry-failed: {wanted} of {lines} is not among the images; name the same sources "
            "as before"
        )


def write_merged(before: Path, lines: Path, path: Path) -> None:
    """Write the records of `before`; errors are replaced by the records of `lines`, in order."""
    with before.open("rb") as old, lines.open("rb") as again, path.open("xb") as merged:
        for line in old:
            merged.write(next(again) if _is_error(line) else line)


def _is_error(line: bytes) -> bool:
    return bool(msgspec.json.decode(line).get("status") != "ok")
