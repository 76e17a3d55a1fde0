"""Compiled modules (cubins) on disk, found by their sources.

A file is called `sm_90/filters.tone.point-KEY-SHA256.cubin`. KEY is a digest of the text, the
options, the architecture and the version of the compiler: a change of any of them leads to a new
file. SHA256 is a digest of the content, so that a damaged file is compiled again instead of being
loaded. Digests are cut to 32 hexadecimal digits. A file appears under its name only when it is
complete.
"""

import contextlib
import fcntl
import hashlib
import logging
import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

log = logging.getLogger("darkroom.kernels")

DIGITS = 32
"""Hexadecimal digits of a digest in the name of a file: 128 bits."""


@dataclass(frozen=True, slots=True)
class CubinName:
    """The name of a cubin: its module, the architecture as `sm_90`, and the key."""

    module: str
    architecture: str
    key: str

    @property
    def prefix(self) -> str:
        """Return the name of the file up to the digest of its content."""
        return f"{self.module.removesuffix('.cu').replace('/', '.')}-{self.key}-"


def key(text: str, options: Sequence[str], architecture: str, compiler: str) -> str:
    """Return the digest of everything that the content of a cubin depends on."""
    parts = [text, *options, architecture, compiler]
    lengths = ",".join(str(len(part)) for part in parts)  # no two lists of parts look the same
    return _digest("\0".join([lengths, *parts]).encode())


def shipped(cache_folder: Path) -> Path:
    """Return the folder of the cubins that were compiled in advance, below `cache_folder`."""
    return cache_folder / "kernels"


def folders(cache_folder: Path, user_folder: Path) -> tuple[Path, ...]:
    """Return the folders of a store: the folder that images ship, then a folder that its user can
    write.
    """
    return tuple(dict.fromkeys([shipped(cache_folder), shipped(user_folder)]))


class CubinStore:
    """Cubins in several folders: looked for in each folder, kept in the first writable folder.

    The first folder may be a read-only folder that came with an image. A folder that is missing is
    empty. A folder that cannot be written is no error: the cubins are then compiled at each start.
    """

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = tuple(folders)

    def find(self, name: CubinName) -> bytes | None:
        """Return the content of a file that is there and undamaged."""
        for folder in self._folders:
            for path in sorted((folder / name.architecture).glob(f"{name.prefix}*.cubin")):
                content = _read(path)
                if content is not None and path.stem.endswith(f"-{_digest(content)}"):
                    return content
                log.warning("%s is damaged; its kernels are compiled again", path)
        return None

    def add(self, name: CubinName, content: bytes) -> Path | None:
        """Write a file and return its path; None where no folder can be written."""
        for folder in self._folders:
            target = folder / name.architecture
            try:
                target.mkdir(parents=True, exist_ok=True)
                return _written(target / f"{name.prefix}{_digest(content)}.cubin", content)
            except OSError as error:
                log.debug("%s cannot be written: %s", target, error)
        return None

    def writable(self) -> bool:
        """Return whether `add` can write; makes the first folder if it is missing."""
        for folder in self._folders:
            with contextlib.suppress(OSError):
                folder.mkdir(parents=True, exist_ok=True)
                if os.access(folder, os.W_OK):
                    return True
        return False

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Wait until no other process of this host compiles; the kernel frees the lock with it.

        Without a folder that can be written, or on a file system without locks, there is no wait:
        to compile twice does no harm, because `add` replaces whole files.
        """
        with contextlib.ExitStack() as stack:
            for folder in self._folders:
                with contextlib.suppress(OSError):
                    folder.mkdir(parents=True, exist_ok=True)
                    fcntl.flock(stack.enter_context((folder / "lock").open("ab")), fcntl.LOCK_EX)
                    break
            yield


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:DIGITS]


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None


def _written(path: Path, content: bytes) -> Path:
    """Write through a temporary file beside `path`, readable by everybody as the image needs."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".part")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            os.fchmod(file.fileno(), 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
    return path
