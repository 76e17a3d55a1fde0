"""The weights store: published files, downloaded once, verified whole, kept in a cache folder.

It does not import torch: `engines.model` opens the files that were verified here.
"""

import fcntl
import hashlib
import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import httpx
from tqdm import tqdm

from models.networks.registry import CATALOGUE, qualified_name
from models.networks.spec import PublishedWeights

log = logging.getLogger("darkroom.weights")


class WeightsUnavailable(Exception):
    """The error for missing weights; its text gives the reason and advice."""


class WeightsCorrupt(WeightsUnavailable):
    """The error for a file that exists but is not the expected file."""

    def __init__(self, path: Path, expected: str, actual: str) -> None:
        super().__init__(
            f"{path} has sha256 {actual} instead of {expected}: it is damaged or another file. "
            "Replace it (`darkroom weights fetch` does so for published weights)"
        )
        self.path, self.expected, self.actual = path, expected, actual


def verified_sha256(path: Path, expected: str | None) -> str:
    """Return the SHA-256 of a file (0.1 s for 46 MB).

    Raises WeightsCorrupt unless it is `expected` (None allows any), and WeightsUnavailable for a
    file that cannot be read.
    """
    try:
        with path.open("rb") as file:
            actual = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise WeightsUnavailable(f"cannot read the weights {path}: {error.strerror}") from error
    if expected not in (None, actual):
        raise WeightsCorrupt(path, str(expected), actual)
    return actual


class Status(Enum):
    """The state of a file in the cache folder, judged by its size; PARTIAL means a wrong size."""

    ABSENT = "absent"
    PARTIAL = "partial"
    PRESENT = "present"


def new_client() -> httpx.Client:
    """Return a client that follows redirects and uses the environment's proxies, unlike image
    fetches.
    """
    return httpx.Client(follow_redirects=True, timeout=httpx.Timeout(30, connect=5))


PAUSES = (0.5, 1.0, 2.0, 4.0)
"""Seconds before each new try of a download that broke off."""


@dataclass(frozen=True, slots=True)
class WeightsStore:
    """Published files in `cache_folder`/weights.

    A file has its own name only once it is whole and verified; until then it is a `.part`. A
    download holds an advisory lock (flock on a `.lock` file that stays), so that all that need the
    same file wait for one download. The kernel releases the lock of a process that ends.
    """

    cache_folder: Path

    def path(self, published: PublishedWeights) -> Path:
        """Return the path of the file, whether it exists or not."""
        return self.cache_folder / "weights" / published.filename

    def status(self, published: PublishedWeights) -> Status:
        """Return the state of a file by its size, for lists; only `open_verified` reads it."""
        path = self.path(published)
        if not path.exists():
            return Status.ABSENT
        return Status.PRESENT if path.stat().st_size == published.size else Status.PARTIAL

    def listing(self) -> tuple[tuple[PublishedWeights, Path, Status], ...]:
        """Return every file of the catalogue with its path and its state."""
        return tuple((p, self.path(p), self.status(p)) for p in CATALOGUE.values())

    def open_verified(self, published: PublishedWeights) -> Path:
        """Return the path of the verified file; never download and never write.

        Raises WeightsCorrupt if the file is not the published file.
        """
        path = self.path(published)
        if not path.exists():
            raise self._unavailable(published, "it is not here")
        verified_sha256(path, published.sha256)
        return path

    def fetch(self, published: PublishedWeights) -> Path:
        """Return the path of the verified file; download it if needed, which may take minutes.

        A terminal shows a bar of the progress.
        """
        path = self.path(published)
        try:
            if not self._intact(published):
                path.parent.mkdir(parents=True, exist_ok=True)
                with _locked(path):
                    if not self._intact(published):
                        self._download(published)
        except OSError as error:
            raise self._unavailable(published, f"the cache folder fails: {error}") from error
        return path

    def _intact(self, published: PublishedWeights) -> bool:
        present = self.status(published) is Status.PRESENT
        return present and verified_sha256(self.path(published), None) == published.sha256

    def _download(self, published: PublishedWeights) -> None:
        """Put the right file in place atomically.

        A server that cannot be reached is not tried again: without a network, a server that starts
        should find that out quickly.
        """
        part = self.path(published).with_name(published.filename + ".part")
        try:
            client = new_client()
        except (ValueError, ImportError, httpx.InvalidURL) as error:  # a wrong proxy variable
            raise self._unavailable(published, f"no connection can be made: {error}") from error
        with client:
            for pause in (*PAUSES, None):
                try:
                    self._receive(client, published, part)
                    break
                except httpx.HTTPError as error:
                    if isinstance(error, httpx.HTTPStatusError):
                        status = error.response.status_code
                        problem, final = f"answers HTTP {status}", 400 <= status < 500
                        final = final and status not in (408, 429)
                    else:
                        problem = f"failed ({error or type(error).__name__})"
                        final = isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)
                    if pause is None or final:
                        problem = f"{published.url} {problem}"
                        raise self._unavailable(published, problem) from error
                    log.warning("download of %s broke off: %s", published.filename, error)
                    time.sleep(pause)
        actual = verified_sha256(part, None)
        if actual != published.sha256:
            part.unlink()
            raise self._unavailable(published, f"{published.url} sent sha256 {actual}")
        os.replace(part, self.path(published))

    def _receive(self, client: httpx.Client, published: PublishedWeights, part: Path) -> None:
        """Write the file as it arrives; raise WeightsUnavailable beyond the published size."""
        name, size = published.filename, published.size
        with (
            client.stream(
                "GET", published.url, headers={"Accept-Encoding": "identity"}
            ) as response,
            part.open("wb") as file,
            tqdm(desc=name, total=size, unit="B", unit_scale=True, disable=None) as bar,
        ):
            response.raise_for_status()
            for chunk in response.iter_raw():
                file.write(chunk)
                bar.update(len(chunk))
                if file.tell() > size:
                    raise self._unavailable(published, f"{published.url} sends too much")
            file.flush()
            os.fsync(file.fileno())

    def _unavailable(self, published: PublishedWeights, problem: str) -> WeightsUnavailable:
        name = qualified_name(published)
        return WeightsUnavailable(
            f"no weights {name}: {problem}. Where there is a network, run `darkroom "
            f"weights fetch {name}`; or copy {published.filename} (sha256 "
            f"{published.sha256}) from {published.url} to {self.path(published)}; or set "
            "DARKROOM_WEIGHTS to a weights file of your own"
        )


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.with_name(path.name + ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            log.info("%s is being downloaded by another process; waiting for it", path.name)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
