"""Compiled modules (cubins) on disk, found by their sources.

A file is called `sm_90/filters.tone.point-KEY.cubin`. KEY is a digest of the text, the options, the
architecture and the version of the compiler, cut to 32 hexadecimal digits: a change of any of them
leads to a new file. A file appears under its name only when it is complete. It begins with the
SHA-256 of the cubin, so that a damaged file is compiled again instead of being loaded.
"""

import contextlib
import fcntl
import hashlib
import logging
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

log = logging.getLogger("darkroom.kernels")

DIGITS = 32
"""Hexadecimal digits of a digest in the name of a file: 128 bits."""

_DIGEST = 32
"""Bytes of a SHA-256."""


def file_of(
    module: str, text: str, options: Sequence[str], architecture: str, compiler: str
) -> Path:
    """Return the path of a cubin below a folder of a store, by all that its content depends on."""
    parts = [text, *options, architecture, compiler]
    lengths = ",".join(str(len(part)) for part in parts)  # no two lists of parts look the same
    key = hashlib.sha256("\0".join([lengths, *parts]).encode()).hexdigest()[:DIGITS]
    name = module.removesuffix(".cu").replace("/", ".")
    return Path(architecture, f"{name}-{key}.cubin")


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

    def find(self, file: Path) -> bytes | None:
        """Return the content of a file that is there and undamaged."""
        for folder in self._folders:
            with contextlib.suppress(OSError):
                stored = (folder / file).read_bytes()
                content = stored[_DIGEST:]
                if stored[:_DIGEST] == hashlib.sha256(content).digest():
                    return content
                log.warning("%s is damaged; its kernels are compiled again", folder / file)
        return None

    def add(self, file: Path, content: bytes) -> Path | None:
        """Write a file and return its path; None where no folder can be written."""
        for folder in self._folders:
            try:
                return _written(folder / file, hashlib.sha256(content).digest() + content)
            except OSError as error:
                log.debug("%s cannot be written: %s", folder, error)
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


def _written(path: Path, content: bytes) -> Path:
    """Write through a temporary file beside `path`, readable by everybody as the image needs."""
    path.parent.mkdir(parents=True, exist_ok=True)
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
