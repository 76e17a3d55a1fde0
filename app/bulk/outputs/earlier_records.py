"""The records that earlier runs of the same command have left, by the names of their images.

They are used again where the images are others than before: a folder has grown, for instance.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from app.bulk.report import readable
from app.bulk.sources.source import Source

_INDEX = re.compile(rb'^\{"index":[0-9]+')


class EarlierRecords:
    """The whole records of these files; of two for one image that of the later file counts.

    An image takes about 150 bytes of memory.
    """

    def __init__(self, files: Sequence[Path]) -> None:
        self._files = files
        self._places: dict[bytes, tuple[int, int, bool]] = {}
        for number, file in enumerate(files):
            offset = 0
            for line in _whole(file):
                record = msgspec.json.decode(line)
                place = number, offset, record.get("status") != "ok"
                self._places[_digest(record["source"])] = place
                offset += len(line)

    def __contains__(self, name: str) -> bool:
        return _digest(readable(name)) in self._places

    def failed(self, name: str) -> bool:
        """Return whether the record of an image is an error."""
        return self._places[_digest(readable(name))][2]

    def write(self, names: Iterable[str], path: Path) -> None:
        """Write the records of these images in this order, with the positions that they have now.

        Raises KeyError if one is missing.
        """
        opened = [file.open("rb") for file in self._files]
        try:
            with path.open("xb") as written:
                for index, name in enumerate(names):
                    number, offset, _ = self._places[_digest(readable(name))]
                    opened[number].seek(offset)
                    line = opened[number].readline()
                    written.write(_INDEX.sub(b'{"index":%d' % index, line))
        finally:
            for file in opened:
                file.close()


def names_in(file: Path) -> Iterator[str]:
    """Yield the names in the whole records of a file, as they are written there."""
    for line in _whole(file):
        yield msgspec.json.decode(line)["source"]


def in_order(journal: Path, sources: Iterable[Source]) -> bool:
    """Return whether the recorded images are the first ones of these sources."""
    now = iter(sources)
    return all((each := next(now, None)) and readable(each.name) == n for n in names_in(journal))


def _whole(file: Path) -> Iterator[bytes]:
    """Yield the lines before the first one that was torn by a kill or a power failure."""
    with file.open("rb") as lines:
        for line in lines:
            if not line.endswith(b"\n") or not line.startswith(b"{"):
                return
            yield line


def _digest(name: str) -> bytes:
    return hashlib.blake2b(name.encode(), digest_size=16).digest()
