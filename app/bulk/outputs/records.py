"""Files of records: found again by the names of their images, and the ones of failures."""

import hashlib
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from app.bulk.errors import WrongUsage
from app.bulk.report import readable
from app.system.terminal import printable

SHOWN = 3
"""Names and failures that are shown in messages."""

_INDEX = re.compile(rb'^\{"index":[0-9]+')


class Records:
    """The whole records of these files; of two for one image that of the later one counts.

    An image takes about 150 bytes of memory.
    """

    def __init__(self, files: Sequence[Path]) -> None:
        self._files = files
        self._places: dict[bytes, tuple[int, int, bool]] = {}
        for number, file in enumerate(files):
            offset = 0
            for line in whole_lines(file):
                record = msgspec.json.decode(line)
                place = number, offset, record.get("status") != "ok"
                self._places[_digest(record["source"])] = place
                offset += len(line)

    def __contains__(self, name: str) -> bool:
        return _digest(readable(name)) in self._places

    def failed(self, name: str) -> bool:
        """Return whether there is a record of an image, and it is an error."""
        place = self._places.get(_digest(readable(name)))
        return place is not None and place[2]

    def write(self, names: Iterable[str], path: Path) -> None:
        """Write the records of these images in this order, with the positions that they have now.

        An image without a record is left out: its file has come after the search for images.
        """
        opened = [file.open("rb") for file in self._files]
        try:
            with path.open("xb") as written:
                for index, name in enumerate(names):
                    place = self._places.get(_digest(readable(name)))
                    if place is not None:
                        opened[place[0]].seek(place[1])
                        line = opened[place[0]].readline()
                        written.write(_INDEX.sub(b'{"index":%d' % index, line))
        finally:
            for file in opened:
                file.close()


def whole_lines(file: Path) -> Iterator[bytes]:
    """Yield the records before the first one that was torn by a kill or a power failure."""
    if not file.exists():
        return
    with file.open("rb") as lines:
        for line in lines:
            if not line.endswith(b"\n") or not line.startswith(b"{"):
                return
            yield line


def names_in(file: Path) -> Iterator[str]:
    """Yield the names in the whole records of a file, as they are written there."""
    return (msgspec.json.decode(line)["source"] for line in whole_lines(file))


def failed_names(file: Path) -> Iterator[str]:
    """Yield the names of the images whose records are errors, in their order."""
    return (msgspec.json.decode(line)["source"] for line in _errors(file))


def check_present(failed: Path, names: Iterable[str]) -> int:
    """Return the number of records of failures; WrongUsage if one is of no image of `names`."""
    wanted = [*failed_names(failed)]
    missing = set(wanted).difference(map(readable, names))
    if missing:
        raise WrongUsage(
            f"--retry-failed: {min(missing)} of {failed} is not among the images; name the same "
            "sources as before"
        )
    return len(wanted)


def write_failures(lines: Path, path: Path) -> None:
    """Write the records of JSON Lines that are errors."""
    with path.open("xb") as failed:
        failed.writelines(_errors(lines))


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

    `lines` are records, and `place` is the file that the user finds them in. The text is empty if
    there are none.
    """
    if not n:
        return ""
    text = f"darkroom: {n} failed; their reasons are in {place}"
    for line in itertools.islice(_errors(lines), SHOWN):
        each = msgspec.json.decode(line)
        reason = each.get("error", {}).get("detail", "")
        text += f"\n  {printable(each['source'])}: {printable(reason)}"
    return f"{text}\n  …" if n > SHOWN else text


def _errors(file: Path) -> Iterator[bytes]:
    with file.open("rb") as lines:
        yield from (line for line in lines if msgspec.json.decode(line).get("status") != "ok")


def _digest(name: str) -> bytes:
    return hashlib.blake2b(name.encode(), digest_size=16).digest()
