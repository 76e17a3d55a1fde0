"""Published weights in the cache folder: fetched once, whole or not at all, verified before use.

Opens nothing: a file that has passed `verify` is for `workers.engines.checkpoint` to read.
"""

import fcntl
import hashlib
import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path

import httpx
from tqdm import tqdm

from models.weights import PublishedWeights

log = logging.getLogger("darkroom.weights")

ATTEMPTS = 4
"""Tries of one download; each goes on where the one before broke off."""

_CHUNK = 1 << 18


class WeightsUnavailable(Exception):
    """The file is not here and could not be fetched; the text says what to do."""


class WeightsCorrupt(Exception):
    """The file has another digest than the published one."""


class Status(StrEnum):
    """Of a file in the cache, by its size."""

    ABSENT = "absent"
    PARTIAL = "partial"
    PRESENT = "present"


class WeightsStore:
    """The folder `weights` of the cache folder. `sleep` waits between tries."""

    def __init__(
        self,
        cache_folder: Path,
        *,
        sleep: Callable[[float], None] = time.sleep,
        client: Callable[[], httpx.Client] = lambda: httpx.Client(
            follow_redirects=True, timeout=httpx.Timeout(30.0, connect=5.0)
        ),
    ) -> None:
        self._folder = cache_folder / "weights"
        self._sleep = sleep
        self._client = client

    def path(self, weights: PublishedWeights) -> Path:
        """Where the file is, or would be."""
        return self._folder / weights.filename

    def status(self, weights: PublishedWeights) -> Status:
        """Whether it is here, judged by size alone."""
        if self.path(weights).is_file():
            return Status.PRESENT
        return Status.PARTIAL if self._part(weights).is_file() else Status.ABSENT

    def verify(self, weights: PublishedWeights) -> Path:
        """The path of the file whose whole digest is right; raises WeightsCorrupt."""
        path = self.path(weights)
        if not path.is_file():
            raise WeightsUnavailable(self._advice(weights, "the file is not in the cache"))
        found = file_sha256(path)
        if found != weights.sha256:
            raise WeightsCorrupt(
                f"{path} has sha256 {found}, not {weights.sha256}; "
                "delete it and run `darkroom weights fetch`"
            )
        return path

    def fetch(self, weights: PublishedWeights, *, progress: bool = False) -> Path:
        """The verified file, downloaded if it is not here. Raises WeightsUnavailable or Corrupt."""
        if self.status(weights) is Status.PRESENT:
            return self.verify(weights)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with self._alone(weights):
                if self.status(weights) is not Status.PRESENT:
                    self._download(weights, progress)
        except OSError as error:
            raise WeightsUnavailable(self._advice(weights, f"cannot write: {error}")) from error
        return self.verify(weights)

    def _download(self, weights: PublishedWeights, progress: bool) -> None:
        part, reason = self._part(weights), ""
        for attempt in range(ATTEMPTS):
            if attempt:
                self._sleep(2.0 ** (attempt - 1))
            try:
                self._continue(weights, part, progress)
            except httpx.HTTPError as error:
                reason = f"{type(error).__name__}: {error}"
                log.warning("download of %s broke off: %s", weights.filename, reason)
                continue
            if file_sha256(part) == weights.sha256:
                os.replace(part, self.path(weights))
                return
            part.unlink()
            reason = "the downloaded bytes have another sha256"
        raise WeightsUnavailable(self._advice(weights, reason))

    def _continue(self, weights: PublishedWeights, part: Path, progress: bool) -> None:
        """Append what is missing to `part`; never more than the published size."""
        have = part.stat().st_size if part.is_file() else 0
        if have == weights.size:
            return
        headers = {"Range": f"bytes={have}-"} if have else {}
        with self._client() as client, client.stream("GET", weights.url, headers=headers) as reply:
            reply.raise_for_status()
            if reply.status_code != httpx.codes.PARTIAL_CONTENT:
                have = 0
            with part.open("r+b" if have else "wb") as file:
                file.seek(have)
                self._copy(reply, file.write, weights, have, progress)
                file.flush()
                os.fsync(file.fileno())

    def _copy(
        self,
        reply: httpx.Response,
        write: Callable[[bytes], int],
        weights: PublishedWeights,
        have: int,
        progress: bool,
    ) -> None:
        with tqdm(
            desc=weights.filename,
            initial=have,
            total=weights.size,
            unit="B",
            unit_scale=True,
            disable=not progress,
        ) as bar:
            for chunk in reply.iter_raw(_CHUNK):
                have += len(chunk)
                if have > weights.size:
                    raise httpx.RemoteProtocolError(f"more than {weights.size} bytes")
                bar.update(write(chunk))
        if have < weights.size:
            raise httpx.RemoteProtocolError(f"{have} of {weights.size} bytes")

    @contextmanager
    def _alone(self, weights: PublishedWeights) -> Iterator[None]:
        """One process downloads; others wait here and then find the file."""
        with (self._folder / f"{weights.filename}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _part(self, weights: PublishedWeights) -> Path:
        return self._folder / f"{weights.filename}.part"

    def _advice(self, weights: PublishedWeights, reason: str) -> str:
        return (
            f"the weights {weights.name} are missing ({reason}). Run `darkroom weights fetch` "
            f"where there is a network, or copy {weights.filename} (sha256 {weights.sha256}) to "
            f"{self.path(weights)}, or set DARKROOM_WEIGHTS to a file of your own"
        )


def file_sha256(path: Path) -> str:
    """The digest of a whole file, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
