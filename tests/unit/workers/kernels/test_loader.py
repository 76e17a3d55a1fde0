"""The text of the kernels as a C++ project: includes, self-contained files, one text for caches."""

import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.emulation.emulator import FLAGS
from workers.kernels import loader

HEADERS = sorted(loader.FOLDER.rglob("*.cuh"))
FILES = sorted(loader.FOLDER.rglob("*.cu"))
SHARED = ("filters/arithmetic", "filters/separable")
"""Folders of headers for several families of filters."""


def compiler() -> str:
    found = shutil.which("g++")
    if found is None:
        pytest.skip("g++ is not installed; it reads the kernels as C++")
    return found


def preprocessed(text: str) -> list[str]:
    """Return the preprocessed lines of g++ without marks of files and lines."""
    command = [compiler(), f"-I{loader.FOLDER}", "-E", "-P", "-x", "c++", "-"]
    done = subprocess.run(command, input=text.encode(), capture_output=True, check=True)
    return [line for line in done.stdout.decode().splitlines() if line.strip()]


def test_includes_are_resolved_as_a_compiler_resolves_them() -> None:
    found = preprocessed(loader.source())
    assert len(found) > 3000
    assert found == preprocessed(loader.root())


def test_a_header_that_is_not_there_is_named(tmp_path: Path) -> None:
    (tmp_path / "one.cu").write_text('#include "missing.cuh"\n')
    with pytest.raises(FileNotFoundError, match=r"missing\.cuh"):
        loader.expanded(loader.root(tmp_path), tmp_path)


@pytest.mark.slow
def test_every_file_reads_alone_by_its_own_includes() -> None:
    def errors(file: Path) -> str:
        command = [compiler(), *FLAGS, "-fsyntax-only", "-x", "c++", "-"]
        text = f'#include "{file}"\n'
        return subprocess.run(command, input=text.encode(), capture_output=True).stderr.decode()

    with ThreadPoolExecutor() as compilers:
        assert "".join(compilers.map(errors, [*HEADERS, *FILES])) == ""


def test_a_file_includes_only_its_own_folder_and_the_shared_ones() -> None:
    for file in [*HEADERS, *FILES]:
        folder = file.relative_to(loader.FOLDER).parent.as_posix()
        family = not folder.startswith("kernels")
        allowed = {"kernels/headers", *((*SHARED, folder) if family else ())}
        for name in re.findall(r'#include "([^"]*)"', file.read_text("utf-8")):
            assert name.rpartition("/")[0] in allowed, f"{file} includes {name}"
