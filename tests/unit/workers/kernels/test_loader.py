"""The text of the kernels as a C++ project: includes, self-contained files, one text for caches."""

import re
import subprocess

from tests.emulation.emulator import ROOT, compiler
from workers.kernels import loader

HEADERS = sorted(loader.FOLDER.rglob("*.cuh"))
FILES = sorted(loader.FOLDER.rglob("*.cu"))
SHARED = ("filters/arithmetic", "filters/separable")
"""Folders of headers for several families of filters."""


def preprocessed(text: str) -> list[str]:
    """Return the preprocessed lines of g++ without marks of files and lines."""
    command = [compiler(), f"-I{loader.FOLDER}", "-E", "-P", "-x", "c++", "-"]
    done = subprocess.run(command, input=text.encode(), capture_output=True, check=True)
    return [line for line in done.stdout.decode().splitlines() if line.strip()]


def test_includes_are_resolved_as_a_compiler_resolves_them() -> None:
    found = preprocessed(loader.expanded(ROOT))
    assert len(found) > 3000
    assert found == preprocessed(ROOT)


def test_a_file_includes_only_its_own_folder_and_the_shared_ones() -> None:
    for file in [*HEADERS, *FILES]:
        folder = file.relative_to(loader.FOLDER).parent.as_posix()
        family = not folder.startswith("kernels")
        allowed = {"kernels/headers", *((*SHARED, folder) if family else ())}
        for name in re.findall(r'#include "([^"]*)"', file.read_text("utf-8")):
            assert name.rpartition("/")[0] in allowed, f"{file} includes {name}"
