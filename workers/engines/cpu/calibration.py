"""The precision that was measured to be the fastest on this machine, kept on disk between starts.

Measuring takes more than half of the CPU time of a start. A measurement counts for a network, a
model of processor, a number of cores and a release of torch. It is repeated after a month, and
whenever the file `calibration.json` is deleted.
"""

import contextlib
import importlib.metadata
import json
import logging
import os
import platform
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from models.settings import Precision

log = logging.getLogger("darkroom.start")

NAME = "calibration.json"

LIFETIME = 30 * 24 * 3600.0
"""Seconds for which a measurement is used, so that one that was disturbed is corrected."""

_READABLE = 0o644
"""Permissions of the file: a server of another user may read what root has measured."""

_CPUINFO = Path("/proc/cpuinfo")

_WITHOUT_A_NAME = (
    *("cpu implementer", "cpu architecture", "cpu variant", "cpu part", "cpu revision"),
    *("cpu", "revision", "machine", "isa", "uarch", "processor 0", "features"),
)
"""Lines that tell processors apart where no line is a model's name: of ARM, POWER, RISC-V, s390."""


class Calibration:
    """Measured precisions in the first of `folders` that has the file; writes where it can."""

    def __init__(self, folders: Sequence[Path], cores: int) -> None:
        self._files = [folder / NAME for folder in dict.fromkeys(folders)]
        self._machine = f"{processor()}; {cores} cores; torch {importlib.metadata.version('torch')}"

    def find(self, network: str) -> Precision | None:
        """Return the measurement of a network on such a machine; None if it must be measured."""
        for file in self._files:
            entry = _entries(file).get(self._key(network))
            with contextlib.suppress(TypeError, KeyError, ValueError):
                if entry is not None and 0 <= time.time() - float(entry["measured"]) < LIFETIME:
                    return Precision(entry["precision"])
        return None

    def add(self, network: str, precision: Precision) -> None:
        """Keep a measurement; without a folder that can be written, the next start measures."""
        for file in self._files:
            entry = {"precision": precision.value, "measured": int(time.time())}
            try:
                _write(file, {**_entries(file), self._key(network): entry})
            except OSError as error:
                log.debug("%s cannot be written: %s", file, error)
                continue
            return

    def _key(self, network: str) -> str:
        return f"{network}; {self._machine}"


def processor(cpuinfo: Path = _CPUINFO) -> str:
    """Return the model of the processor as Linux describes it, after the architecture.

    Where Linux gives no name of a model, as on ARM, that is the numbers of the implementer, the
    part, its variant and its revision, of each kind of core, and the instruction sets.
    """
    lines: list[str] = []
    with contextlib.suppress(OSError):
        lines = cpuinfo.read_text("utf-8", "replace").splitlines()
    named: dict[str, list[str]] = {}
    for line in lines:
        name, _, value = line.partition(":")
        if (value := value.strip()) not in named.setdefault(name.strip().lower(), []):
            named[name.strip().lower()].append(value)
    kinds = ("model name",) if "model name" in named else _WITHOUT_A_NAME
    found = (" ".join(value for value in named.get(kind, ())) for kind in kinds)
    return " ".join([platform.machine(), *filter(None, found)])


def _entries(file: Path) -> Mapping[str, Any]:
    """Return the content of a file; a damaged or foreign file has none."""
    with contextlib.suppress(OSError, ValueError):
        found: object = json.loads(file.read_text("utf-8"))
        if isinstance(found, dict):
            return found
    return {}


def _write(file: Path, entries: Mapping[str, Any]) -> None:
    """Write a file that further processes see whole or not at all."""
    file.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=file.parent, prefix=".", suffix=".part")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as out:
            json.dump(entries, out, indent=1)
            os.fchmod(out.fileno(), _READABLE)
        os.replace(temporary, file)
    except BaseException:
        os.unlink(temporary)
        raise
