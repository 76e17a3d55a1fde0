"""S3 and Google by moto's server and Azure by Azurite, each in a process of its own."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, closing
from functools import partial
from pathlib import Path

import pytest

from app.storage import buckets
from app.storage.location import Location
from app.storage.storage import THREADS, Storage
from models.domain.errors import NotFound, OriginFailed, TooLarge
from models.settings import Settings
from tests.object_stores import BUCKET, azure, azurite, google, s3

pytest.importorskip("obstore")
pytest.importorskip("moto")


@pytest.fixture(scope="module", params=["s3", "gs", "az"])
def root(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the address of an empty bucket of a server that runs."""
    program = azurite()
    if request.param == "az" and program is None:
        pytest.skip("Azurite is not installed: npm install azurite, and name it by AZURITE")
    folder = tmp_path_factory.mktemp("azurite")
    servers: dict[str, Callable[[], AbstractContextManager[dict[str, str]]]] = {
        "s3": s3,
        "gs": google,
        "az": partial(azure, program or "", folder),
    }
    with servers[request.param]() as environment, pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(("AWS_", "AZURE_", "GOOGLE_"))]:
            patch.delenv(name)
        for name, value in environment.items():
            patch.setenv(name, value)
        yield f"{request.param}://{BUCKET}"


async def read(storage: Storage, location: Location, limit: int) -> bytes:
    return b"".join([piece async for piece in storage.pieces(location, limit)])


@asynccontextmanager
async def storage_of(root: str, *others: str) -> AsyncIterator[Storage]:
    settings = Settings(storage_allow=(root, *others), storage_allow_write=(f"{root}/out/",))
    with closing(Storage.from_settings(settings)) as storage:
        yield storage


async def pieces(total: int) -> AsyncIterator[bytes]:
    for start in range(0, total, 1_000_000):
        yield bytes([start // 1_000_000 % 256]) * min(1_000_000, total - start)


async def test_what_was_written_is_read_and_listed(root: str) -> None:
    names = ["plain.jpg", "a b%20#?.jpg", "ü/deep/er.png"]

    async with storage_of(root) as storage:
        for name in names:
            await storage.write(storage.writable(f"{root}/out/one/{name}"), name.encode())
        await storage.write(storage.writable(f"{root}/out/one/.hidden"), b"")
        await storage.write(storage.writable(f"{root}/out/one2/other"), b"")
        folder = storage.readable(f"{root}/out/one/")
        assert {each async for each in storage.list(folder)} == {*names}
        for name in names:
            assert await read(storage, folder.below(name), 100) == name.encode()


async def test_a_large_object_goes_in_parts_and_comes_in_pieces(root: str) -> None:
    async with storage_of(root) as storage:
        target = storage.writable(f"{root}/out/large")
        await storage.write(target, pieces(12_345_678))
        sizes = [len(piece) async for piece in storage.pieces(target, 20_000_000)]
        assert sum(sizes) == 12_345_678
        assert len(sizes) > 1
        whole = b"".join([piece async for piece in pieces(12_345_678)])
        assert await read(storage, target, 12_345_678) == whole
        with pytest.raises(TooLarge, match="one image has at most 12345677"):
            await read(storage, target, 12_345_677)


async def test_a_write_that_fails_makes_no_object(root: str) -> None:
    async def broken() -> AsyncIterator[bytes]:
        async for piece in pieces(7_000_000):
            yield piece
        raise ZeroDivisionError

    async with storage_of(root) as storage:
        target = storage.writable(f"{root}/out/broken")
        with pytest.raises(ZeroDivisionError):
            await storage.write(target, broken())
        with pytest.raises(NotFound, match="there is no such object"):
            await read(storage, target, 100)


async def test_more_than_a_page_is_listed(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buckets, "AT_ONCE", 10)
    names = [f"{number:02}" for number in range(25)]

    async with storage_of(root) as storage:
        folder = storage.writable(f"{root}/out/many")
        await asyncio.gather(*(storage.write(folder.below(name), b"x") for name in names))
        assert [each async for each in storage.list(folder)] == names


async def test_a_missing_bucket_is_an_error_of_its_item(root: str) -> None:
    async with storage_of(f"{root}2") as storage:
        with pytest.raises((NotFound, OriginFailed)):
            await read(storage, storage.readable(f"{root}2/a"), 100)


def test_a_bucket_without_the_extra_ends_the_start_with_its_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("app.storage.buckets.installed", lambda: False)
    with pytest.raises(ValueError, match=r"install Darkroom with its extra `storage`"):
        Storage.from_settings(Settings(storage_allow=("s3://bucket/photos",)))
    Storage.from_settings(Settings(storage_allow=(tmp_path.as_uri(),))).close()


async def test_buckets_that_do_not_answer_keep_no_local_file_waiting(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    silence = socket.create_server(("127.0.0.1", 0))
    port = silence.getsockname()[1]
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
    for name in ("AWS_ALLOW_HTTP", "AWS_SKIP_SIGNATURE"):
        monkeypatch.setenv(name, "true")
    monkeypatch.setattr(buckets, "_store", buckets._store.__wrapped__)
    (tmp_path / "a.jpg").write_bytes(b"x")
    async with storage_of("s3://silent", tmp_path.as_uri()) as storage:
        silent = storage.readable("s3://silent/")
        listings = [asyncio.ensure_future(anext(storage.list(silent))) for _ in range(THREADS)]
        await asyncio.sleep(0)  # they begin
        async with asyncio.timeout(20):
            assert await read(storage, storage.readable(f"{tmp_path.as_uri()}/a.jpg"), 10) == b"x"
        for each in listings:
            each.cancel()
        await asyncio.gather(*listings, return_exceptions=True)
    silence.close()
