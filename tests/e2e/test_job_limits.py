"""What one client's jobs may take: the room of the data folder, and bodies that arrive."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from tests.e2e.conftest import Running, Start

MOST = 20_000_000
ZIP, GZIP = {"Content-Type": "application/zip"}, {"Content-Type": "application/gzip"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("limits") / "data"


@pytest.fixture(scope="module")
def server(start: Start, folder: Path) -> Iterator[Running]:
    with start(data_folder=folder, max_data_bytes=MOST) as running:
        yield running


def held(folder: Path) -> int:
    """Return the bytes of all jobs on the disk."""
    files = (Path(root, name) for root, _, names in os.walk(folder / "jobs") for name in names)
    total = 0
    for each in files:
        with suppress(FileNotFoundError):  # the server removes the folder of a refused body
            total += each.stat().st_size
    return total


def test_a_body_of_unknown_length_is_refused_when_the_folder_is_full(
    server: Running, folder: Path
) -> None:
    most = 0

    def pieces() -> Iterator[bytes]:
        nonlocal most
        for _ in range(400):
            yield os.urandom(1 << 18)
            most = max(most, held(folder))

    answer = server.client.post("/jobs?operation=classify", content=pieces(), headers=ZIP)
    assert answer.status_code == 507, answer.text
    assert answer.json()["code"] == "storage_full"
    assert most <= 1.1 * MOST
    assert not [*(folder / "jobs").iterdir()]


def test_a_client_leaves_a_part_of_the_folder_to_others(server: Running) -> None:
    def pieces(n_bytes: int) -> Iterator[bytes]:
        for _ in range(0, n_bytes, 1 << 18):
            yield b" " * (1 << 18)
        yield b'{"data": "data:,"}\n'

    def posted(n_bytes: int) -> httpx.Response:
        body = pieces(n_bytes)
        return server.client.post("/jobs?operation=classify", content=body, headers=ZIP)

    answer = posted(MOST * 7 // 8)
    assert (answer.status_code, answer.json()["code"]) == (507, "storage_full")
    assert "three quarters of DARKROOM_MAX_DATA_BYTES" in answer.json()["detail"]
    assert posted(MOST // 2).status_code == 422, "it is no archive, and fits"
