"""The records of a command while it runs: it can continue them after it was stopped by kill -9.

Records are appended as JSON Lines to a partial file beside the target. When all are there, the
target is made of them, so no reader sees half of them. A line that was cut off is removed before
work goes on. A small file `.origin.json` beside the partial file, and beside the target, names the
makers of the records, so records of two networks, or of two sets of options, are never mixed.
"""

import errno
import fcntl
import hashlib
import itertools
import json
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, Self

import msgspec

from app.bulk import atomic_file
from app.bulk.errors import CannotWrite, WrongUsage, exists
from app.bulk.report import readable
from app.system.terminal import printable

SYNC = 1.0
"""Seconds after which appended records are forced to the disk: a power failure costs no more."""

SHOWN = 3
"""Names and failures that are shown in messages."""

_INDEX = re.compile(rb'^\{"index":[0-9]+')

Convert = Callable[[Path, Path], None]
"""Writes the target, the second file, of the records in the first one."""


class Journal:
    """The partial file for the target `path`; `earlier` are the records that are there already.

    The records depend on the `options`: a run with different options has another partial file.
    `check` is called before a partial file is made: a partial file proves that an earlier run has
    passed it. `done` and `failed` count records. Raises WrongUsage and CannotWrite.

    As a context manager it closes the file, which the same command continues. A file without
    records is removed if the block ends with WrongUsage: nothing was begun.
    """

    def __init__(
        self,
        path: Path,
        options: Mapping[str, object],
        *,
        replaces: bool,
        check: Callable[[], object] = lambda: None,
    ) -> None:
        path = _regular(path)
        if not replaces and path.exists():
            raise WrongUsage(f"--out: {exists(path)}")
        if not path.parent.is_dir():
            raise WrongUsage(f"--out: there is no folder {path.parent}; make it first")
        self._path, self._replaces = path, replaces
        self.partial = partial_of(path, options)
        self._origin = Origin(self.partial, {}, "--out")
        self._synced = time.monotonic()
        if not self.partial.exists():
            check()
        try:
            self._file = self._locked()
        except OSError as error:
            raise CannotWrite.of(self.partial, error) from None
        self.earlier = Records([self.partial])
        self.done, self.failed = self.earlier.count, self.earlier.n_failed
        self._file.truncate(self.earlier.size)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: object, _trace: object) -> None:
        if isinstance(error, WrongUsage) and not self.done:
            self.partial.unlink(missing_ok=True)
            self._origin.remove()
        self._file.close()

    def begin(self, network: Mapping[str, object]) -> None:
        """Keep the loaded `network` beside the records, or compare it with that of earlier records.

        It is called before the first record of a run. WrongUsage if another network, weights
        or labels made the records that are there already.
        """
        if self.done:
            self._origin.check_network(network)
        else:
            self._origin.keep(network)

    @property
    def network(self) -> Mapping[str, object]:
        """Return the network that made the records; empty if none did."""
        return self._origin.network

    def add(self, records: bytes, failed: int, count: int = 1) -> None:
        """Append records, lines of JSON; `failed` of them are errors."""
        try:
            rest = memoryview(records)
            while rest:  # unbuffered: it survives the end of this process, and may write less
                rest = rest[self._file.write(rest) :]
            if time.monotonic() - self._synced > SYNC:
                os.fdatasync(self._file.fileno())
                self._synced = time.monotonic()
        except OSError as error:
            raise CannotWrite.of(self.partial, error) from None
        self.done += count
        self.failed += failed

    def finish(self, convert: Convert | None = None) -> None:
        """Make the target, by `convert` unless the records are the target as they are."""
        try:
            os.fsync(self._file.fileno())
            if convert is not None:
                with atomic_file.unfinished(self._path, replace=self._replaces) as temporary:
                    convert(self.partial, temporary)
            elif self._replaces:
                os.replace(self.partial, self._path)
            else:
                atomic_file.publish(self.partial, self._path)
            self.partial.unlink(missing_ok=True)  # or the other name of the same file
            self._origin.remove()
            atomic_file.sync_folder(self._path.parent)
        except FileExistsError:
            raise CannotWrite(
                f"{self._path} was made meanwhile; {self.partial} is complete"
            ) from None
        except OSError as error:
            raise CannotWrite.of(self._path, error) from None
        finally:
            self._file.close()

    def _locked(self) -> BinaryIO:
        """Open the partial file for this process alone."""
        if self.partial.exists() and self._path.exists() and self.partial.samefile(self._path):
            self.partial.unlink()  # a finished file: its process was killed before this step
        file = open(self.partial, "a+b", buffering=0)  # noqa: SIM115 (closed by `__exit__`)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            atomic_file.sync_folder(self.partial.parent)
        except OSError as error:
            file.close()
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise
            raise WrongUsage(f"--out: another command is writing {self._path} just now") from None
        if not self.partial.exists() or not os.path.samestat(
            os.fstat(file.fileno()), self.partial.stat()
        ):
            file.close()  # another command has finished it between `open` and `flock`
            raise WrongUsage(f"--out: another command has just written {self._path}")
        return file


class Origin:
    """The file about `records`, which depend on the `options` of this command.

    Messages begin with the `flag` of the command that is refused.
    """

    def __init__(self, records: Path, options: Mapping[str, object], flag: str) -> None:
        self._records, self._flag = records, flag
        self._options = json.loads(json.dumps(options, default=str))
        path = records.resolve()
        self._path = path.with_name(f"{path.name}.origin.json")

    @property
    def is_known(self) -> bool:
        """Return whether there is a file about the records."""
        return self._path.exists()

    @property
    def network(self) -> Mapping[str, object]:
        """Return the network that made the records; empty if it is not known."""
        return self._read()["network"] if self.is_known else {}

    def check_options(self) -> None:
        """Raise WrongUsage if the first run had different options, or if it is not known."""
        if differences := [*_differences(self._read()["options"], self._options)]:
            raise WrongUsage(
                f"{self._flag}: {self._records} was made with other options: "
                f"{', '.join(differences)}; use the earlier ones, or --force to begin anew"
            )

    def check_network(self, network: Mapping[str, object]) -> None:
        """Raise WrongUsage if another network, weights or labels made the rest."""
        if differences := [*_differences(self._read()["network"], network)]:
            raise WrongUsage(
                f"{self._flag}: another network made {self._records} than is loaded now: "
                f"{', '.join(differences)}; make the earlier one available again, or remove the "
                "file to begin anew"
            )

    def check_present(self, recorded: Iterable[str], names: Iterable[str]) -> None:
        """Raise WrongUsage if an image that has a record is none of `names`."""
        if gone := sorted(set(recorded).difference(map(readable, names))):
            more = ", …" if len(gone) > SHOWN else ""
            raise WrongUsage(
                f"{self._flag}: {self._records} has records of {len(gone)} images that are not "
                f"among the sources any more ({', '.join(gone[:SHOWN])}{more}); name the same "
                "sources as before, write to another file, or add --force to begin anew"
            )

    def keep(self, network: Mapping[str, object]) -> None:
        """Write the file about a run that has ended; without a network the known network stays."""
        try:
            known = {"options": self._options, "network": dict(network or self.network)}
            atomic_file.write(self._path, json.dumps(known).encode() + b"\n", replace=True)
            atomic_file.sync_folder(self._path.parent)
        except OSError as error:
            raise CannotWrite.of(self._path, error) from None

    def remove(self) -> None:
        """Remove the file, if it is there."""
        self._path.unlink(missing_ok=True)

    def _read(self) -> Mapping[str, Mapping[str, object]]:
        try:
            known = json.loads(self._path.read_bytes())
            return {"options": dict(known["options"]), "network": dict(known["network"])}
        except (OSError, ValueError, KeyError, TypeError):
            raise WrongUsage(
                f"{self._flag}: {self._path} is missing or cannot be read, so it is not known "
                f"what made {self._records}; run the command for all images into another file"
            ) from None


class Records:
    """The whole records of these files; of two records for an image the later record counts.

    `count` lines of `size` bytes were read, of which `n_failed` are errors. An image takes about
    150 bytes of memory.
    """

    def __init__(self, files: Sequence[Path]) -> None:
        self._files = files
        self._places: dict[bytes, tuple[int, int, bool]] = {}
        self.count = self.n_failed = self.size = 0
        for number, file in enumerate(files):
            offset = 0
            for line, record in records_of(file):
                failed = record.get("status") != "ok"
                self._places[_digest(str(record["source"]))] = number, offset, failed
                self.count, self.n_failed = self.count + 1, self.n_failed + failed
                offset += len(line)
            self.size += offset

    def __contains__(self, name: str) -> bool:
        return bool(self._places) and _digest(readable(name)) in self._places

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


def names_in(file: Path, *, failed: bool = False) -> Iterator[str]:
    """Yield the names in the whole records of a file, or of its failures, as they are written."""
    return (record["source"] for _, record in (_errors if failed else records_of)(file))


def write_failures(lines: Path, path: Path) -> None:
    """Write the records of JSON Lines that are errors."""
    with path.open("xb") as failed:
        failed.writelines(line for line, _ in _errors(lines))


def beside(folder: Path) -> Path:
    """Return the file of failures for a folder of results: `made.failed.jsonl` beside `made`."""
    folder = folder.resolve()
    return folder.with_name(f"{folder.name}.failed.jsonl")


def partial_of(path: Path, options: Mapping[str, object]) -> Path:
    """Return the partial file of a command with these options."""
    digest = hashlib.sha256(json.dumps(options, sort_keys=True, default=str).encode())
    path = path.resolve()
    return path.with_name(f"{path.name}.{digest.hexdigest()[:8]}.partial")


def unfinished(file: Path) -> list[Path]:
    """Return the partial files of commands for the records `file` that have not ended."""
    file = file.resolve()
    names = (each for each in file.parent.glob("*.partial"))
    return sorted(each for each in names if each.name.startswith(f"{file.name}."))


def check_ended(file: Path) -> None:
    """Raise WrongUsage if another command that writes the finished records `file` has not ended.

    Call it before a retry begins. A command that was killed while it replaced the file may have
    noted the origin of its own records, and the file would still be the file before.
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
    for _, each in itertools.islice(_errors(lines), SHOWN):
        reason = each.get("error", {}).get("detail", "")
        text += f"\n  {printable(each['source'])}: {printable(reason)}"
    return f"{text}\n  …" if n > SHOWN else text


def records_of(file: Path) -> Iterator[tuple[bytes, dict[str, Any]]]:
    """Yield lines and their records before the first that a kill or a power failure has torn."""
    if not file.exists():
        return
    with file.open("rb") as lines:
        for line in lines:
            record: object = None
            with suppress(ValueError):
                record = msgspec.json.decode(line)
            if not isinstance(record, dict) or "source" not in record or line[-1:] != b"\n":
                return
            yield line, record


def _errors(file: Path) -> Iterator[tuple[bytes, dict[str, Any]]]:
    return (each for each in records_of(file) if each[1].get("status") != "ok")


def _digest(name: str) -> bytes:
    return hashlib.blake2b(name.encode(), digest_size=16).digest()


def _differences(before: Mapping[str, object], now: Mapping[str, object]) -> Iterator[str]:
    for name in sorted({*before, *now}):
        if before.get(name) != now.get(name):
            yield f"{name} {now.get(name)} (was {before.get(name)})"


def _regular(path: Path) -> Path:
    """Return the file that `path` stands for, behind symbolic links; WrongUsage if it cannot be."""
    if path.is_dir():
        raise WrongUsage(f"--out: {path} is a folder; give the name of a file in it")
    if atomic_file.is_stream(path):
        raise WrongUsage(
            f"--out: {path} is no regular file, so it cannot be continued; "
            "leave --out out and redirect standard output"
        )
    try:
        return path.resolve()
    except (OSError, RuntimeError) as error:  # RuntimeError: links that point at each other
        raise CannotWrite.of(path, error) from None
