"""A file of records that a command can continue after it was stopped, even by kill -9.

Records are appended as JSON Lines to a partial file beside the target. When all are there it
becomes the target, or is converted to its format (CSV, Parquet), so no reader sees half of them. A
line that was cut off is removed before work goes on. Another small file names the network that
makes the records, so those of two are never mixed.
"""

import errno
import fcntl
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

import msgspec

from app.bulk.errors import CannotWrite, WrongUsage
from app.bulk.outputs import atomic_file, failures
from app.bulk.report import readable

SYNC = 1.0
"""Seconds after which appended records are forced to the disk: a power failure costs no more."""


Convert = Callable[[Path, Path], None]
"""Writes the records of the first file, JSON Lines, to the second one in another format."""


class ResultsFile:
    """The records of the images `names`, in this order; `done` are there already.

    Exactly `done` names are taken from an iterator, so that it goes on with the first image without
    a record. `options` are what the records depend on. A run with other options has another partial
    file, and begins anew. `check` is called before a partial file is made: one that is there proves
    that an earlier run has passed it. `convert` makes the target of the records, unless it is JSON
    Lines. With `anew` earlier records do not count. Raises WrongUsage and CannotWrite.
    """

    def __init__(
        self,
        path: Path,
        names: Iterable[str],
        options: Mapping[str, object],
        *,
        replaces: bool,
        convert: Convert | None = None,
        check: Callable[[], object] = lambda: None,
        anew: bool = False,
    ) -> None:
        path = _regular(path)
        if not replaces and path.exists():
            raise WrongUsage(f"--out: {path} exists already; add --force to replace it")
        if not path.parent.is_dir():
            raise WrongUsage(f"--out: there is no folder {path.parent}; make it first")
        self._path, self._replaces, self._convert = path, replaces, convert
        self._partial = partial_of(path, options)
        self._network = self._partial.with_suffix(".network")
        self._synced = time.monotonic()
        self.resumed = self._partial.exists()
        """True if an earlier run with the same options has begun and did not end."""
        if not self.resumed:
            check()
        try:
            self._file = self._locked()
        except OSError as error:
            raise CannotWrite.of(self._partial, error) from None
        try:
            if anew:
                self._file.truncate(0)
            self.done, self.failed = self._continued(iter(names))
        except BaseException:  # re-raised
            self._file.close()
            raise

    def begin(self, network: Mapping[str, object]) -> None:
        """Keep the loaded `network` beside the records, or compare it with that of earlier records.

        It is called before the first record of a run. WrongUsage if another network, other weights
        or other labels made the records that are there already.
        """
        try:
            if not self.done:
                atomic_file.write(self._network, json.dumps(network).encode(), replace=True)
                atomic_file.sync_folder(self._network.parent)
                return
            before = _parsed(self._network.read_bytes()) if self._network.exists() else {}
        except OSError as error:
            raise CannotWrite.of(self._network, error) from None
        if changed := [name for name, value in network.items() if before.get(name) != value]:
            now = ", ".join(f"{name} {network[name]} (was {before.get(name)})" for name in changed)
            raise WrongUsage(
                f"--out: {self._partial} is of another network than is loaded now: {now}; "
                "make the earlier one available again, or remove the file to begin anew"
            )

    @property
    def network(self) -> Mapping[str, object]:
        """Return the network that made the records; empty if none did."""
        try:
            return _parsed(self._network.read_bytes())
        except OSError:
            return {}

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
            raise CannotWrite.of(self._partial, error) from None
        self.done += count
        self.failed += failed

    def failures(self, place: Path | None = None) -> str:
        """Return lines about the failures, for people; empty if there are none.

        Call it before `finish`. `place` is the file with their records, by default the target.
        """
        if not self.failed:
            return ""
        return failures.shown(self._partial, place or self._path, self.failed)

    def finish(self) -> None:
        """Give the file its name, now that it is complete."""
        try:
            os.fsync(self._file.fileno())
            if self._convert is not None:
                atomic_file.convert(self._partial, self._path, self._convert, self._replaces)
            elif self._replaces:
                os.replace(self._partial, self._path)
            else:
                atomic_file.publish(self._partial, self._path)
            self._partial.unlink(missing_ok=True)  # or the other name of the same file
            self._network.unlink(missing_ok=True)
            atomic_file.sync_folder(self._path.parent)
        except FileExistsError:
            raise CannotWrite(
                f"{self._path} was made meanwhile; {self._partial} is complete"
            ) from None
        except OSError as error:
            raise CannotWrite.of(self._path, error) from None
        finally:
            self._file.close()

    def close(self) -> None:
        """Close the partial file, which the same command continues."""
        self._file.close()

    def abandon(self) -> None:
        """Remove the partial file if it has no record: nothing was begun."""
        if not self.done:
            self._partial.unlink(missing_ok=True)
            self._network.unlink(missing_ok=True)
        self._file.close()

    def _locked(self) -> BinaryIO:
        """Open the partial file for this process alone."""
        atomic_file.check_writable(self._partial.parent)
        if self._partial.exists() and self._path.exists() and self._partial.samefile(self._path):
            self._partial.unlink()  # a finished file: its process was killed before this step
        file = open(self._partial, "a+b", buffering=0)  # noqa: SIM115 (closed by `finish`)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            atomic_file.sync_folder(self._partial.parent)
        except OSError as error:
            file.close()
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise
            raise WrongUsage(f"--out: another command is writing {self._path} just now") from None
        if not self._partial.exists() or not os.path.samestat(
            os.fstat(file.fileno()), self._partial.stat()
        ):
            file.close()  # another command has finished it between `open` and `flock`
            raise WrongUsage(f"--out: another command has just written {self._path}")
        return file

    def _continued(self, names: Iterator[str]) -> tuple[int, int]:
        """Return the numbers of records and of failures in the file, and cut off a torn line."""
        self._file.seek(0)
        done = failed = end = 0
        with open(self._file.fileno(), "rb", closefd=False) as lines:
            for line in lines:
                record = _parsed(line) if line.endswith(b"\n") else {}
                if not record:  # torn by a kill, or without its content after a power failure
                    break
                name = next(names, None)
                if name is None or record.get("source") != readable(name):
                    raise WrongUsage(
                        f"--out: {self._partial} is of other images than now; remove it to begin "
                        "anew"
                    )
                done, end = done + 1, end + len(line)
                failed += record.get("status") != "ok"
        self._file.truncate(end)
        return done, failed


def partial_of(path: Path, options: Mapping[str, object]) -> Path:
    """Return the partial file of a command with these options."""
    digest = hashlib.sha256(json.dumps(options, sort_keys=True, default=str).encode())
    path = path.resolve()
    return path.with_name(f"{path.name}.{digest.hexdigest()[:8]}.partial")


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
        reason = isinstance(error, OSError) and error.strerror
        raise CannotWrite(f"{path}: {reason or error}") from None


def _parsed(line: bytes) -> dict[str, object]:
    try:
        record = msgspec.json.decode(line)
    except ValueError:
        return {}
    return record if isinstance(record, dict) else {}
