"""The weights store: published files, downloaded once, verified whole, kept in a cache folder.

It does not import torch: `engines.checkpoint` opens the files that were verified here.
"""

import fcntl
import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import NoReturn, TypeAlias

import httpx
from tqdm import tqdm

from models.networks.registry import CATALOGUE, qualified_name
from models.networks.spec import PublishedWeights
from workers.weights_digest import WeightsUnavailable, file_sha256, verified_sha256

log = logging.getLogger("darkroom.weights")

_Bar: TypeAlias = "tqdm[NoReturn]"


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


class _Broken(Exception):
    """The error of a try that failed, after which another try may succeed."""


@dataclass(frozen=True, slots=True)
class WeightsStore:
    """Published files in `cache_folder`/weights.

    A file has its own name only once it is whole and verified; until then it is a `.part`. A
    download holds an advisory lock (flock on a `.lock` file that stays), so that all that need the
    same file wait for one download. The kernel releases the lock of a process that ends.
    """

    cache_folder: Path
    client: Callable[[], httpx.Client] = new_client
    sleep: Callable[[float], None] = time.sleep
    pauses: tuple[float, ...] = (0.5, 1.0, 2.0, 4.0)
    """Seconds between tries."""

    def path(self, published: PublishedWeights) -> Path:
        """Return the path of the file, whether it exists or not."""
        return self.cache_folder / "weights" / published.filename

    def status(self, published: PublishedWeights) -> Status:
        """Return the state of a file by its size, for lists; only `verify` reads the content."""
        path, part = self.path(published), self._part(published)
        if os.path.exists(path) and os.path.getsize(path) == published.size:
            return Status.PRESENT
        some = os.path.exists(path) or os.path.exists(part)
        return Status.PARTIAL if some else Status.ABSENT

    def listing(self) -> tuple[tuple[PublishedWeights, Path, Status], ...]:
        """Return every file of the catalogue with its path and its state."""
        return tuple((p, self.path(p), self.status(p)) for p in CATALOGUE.values())

    def verify(self, published: PublishedWeights) -> None:
        """Read the whole file; raise WeightsCorrupt if it is not the published one."""
        if not os.path.exists(self.path(published)):
            raise self._unavailable(published, "it is not here")
        verified_sha256(self.path(published), published.sha256)

    def open_verified(self, published: PublishedWeights) -> Path:
        """Return the path of the verified file; never download and never write."""
        self.verify(published)
        return self.path(published)

    def fetch(self, published: PublishedWeights, *, progress: bool | None = None) -> Path:
        """Return the path of the verified file; download it if needed, which may take minutes.

        `progress` draws a bar on stderr: True always, None on a terminal, False never. A download
        that was cut short continues where it stopped, now or in a later call.
        """
        try:
            if not self._intact(published):
                self.path(published).parent.mkdir(parents=True, exist_ok=True)
                with _locked(self.path(published)):
                    if not self._intact(published):
                        self._replace(published, progress)
        except OSError as error:
            raise self._unavailable(published, f"the cache folder fails: {error}") from error
        return self.path(published)

    def _intact(self, published: PublishedWeights) -> bool:
        present = self.status(published) is Status.PRESENT
        return present and file_sha256(self.path(published)) == published.sha256

    def _part(self, published: PublishedWeights) -> Path:
        return self.path(published).with_name(published.filename + ".part")

    def _replace(self, published: PublishedWeights, progress: bool | None) -> None:
        """Put the right file in place atomically; download a wrong file again, but only once."""
        part = self._part(published)
        for last in (False, True):
            self._download(published, progress)
            actual = file_sha256(part)
            if actual == published.sha256:
                break
            part.unlink()  # pieces of an interrupted download may not fit together
            if last:
                raise self._unavailable(published, f"{published.url} sent sha256 {actual}")
        os.replace(part, self.path(published))

    def _download(self, published: PublishedWeights, progress: bool | None) -> None:
        """Download all bytes into the part. A server that was never reached is not tried again."""
        with self._client(published) as client, _bar(published, progress) as bar:
            for pause in (*self.pauses, None):
                try:
                    self._receive(client, published, bar)
                    return  # noqa: TRY300 (the loop ends where the download does)
                except (httpx.RequestError, _Broken) as error:
                    # Without a network, a server that starts should find that out quickly.
                    unreached = isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)
                    if pause is None or (unreached and not self._part(published).exists()):
                        problem = f"{published.url} failed ({error or type(error).__name__})"
                        raise self._unavailable(published, problem) from error
                    log.warning("download of %s broke off: %s", published.filename, error)
                    self.sleep(pause)

    def _receive(self, client: httpx.Client, published: PublishedWeights, bar: _Bar) -> None:
        """Request the missing bytes of the part once; never write more than the published size."""
        part = self._part(published)
        have = part.stat().st_size if part.exists() else 0
        if have >= published.size:
            return
        headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
        with client.stream("GET", published.url, headers=headers) as response:
            have = self._accept(response, published, have)
            bar.n = bar.last_print_n = bar.initial = have
            with part.open("ab" if have else "wb") as file:
                for chunk in response.iter_raw():
                    have += len(chunk)
                    if have > published.size:
                        part.unlink()
                        raise self._unavailable(published, f"{published.url} sends too much")
                    file.write(chunk)
                    bar.update(len(chunk))
                file.flush()
                os.fsync(file.fileno())
        if have < published.size:
            raise _Broken(f"it ended after {have} of {published.size} bytes")

    def _accept(self, response: httpx.Response, published: PublishedWeights, have: int) -> int:
        """Return how many bytes of the part the response continues: all, or none if it starts
        anew.
        """
        status, total = response.status_code, response.headers.get("content-length", "")
        if status == 206:
            span, _, total = response.headers.get("content-range", "").partition("/")
            status = 206 if span.startswith(f"bytes {have}-") else 416
        if status == 416:
            self._part(published).unlink(missing_ok=True)
        if status in (408, 416, 429) or status >= 500:
            raise _Broken(f"HTTP {status}")
        if status not in (200, 206):
            raise self._unavailable(published, f"{published.url} answers HTTP {status}")
        if total.isdigit() and int(total) != published.size:
            problem = f"{published.url} offers {total} bytes instead of {published.size}"
            raise self._unavailable(published, problem)
        return have if status == 206 else 0

    def _client(self, published: PublishedWeights) -> httpx.Client:
        try:
            return self.client()
        except (ValueError, ImportError, httpx.InvalidURL) as error:  # a wrong proxy variable
            raise self._unavailable(published, f"no connection can be made: {error}") from error

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


def _bar(published: PublishedWeights, progress: bool | None) -> _Bar:
    hidden = None if progress is None else not progress
    name, size = published.filename, published.size
    return tqdm(desc=name, total=size, unit="B", unit_scale=True, disable=hidden)
