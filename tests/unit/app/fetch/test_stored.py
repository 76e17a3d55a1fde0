import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from app.admission.clients import LOCAL
from app.fetch.fetcher import Fetcher, FetchLimits
from app.intake.spool import THRESHOLD
from app.storage.location import Location, parse
from app.storage.storage import Storage
from models.domain.deadline import NEVER
from models.domain.errors import AddressRefused, InvalidParameter, NotFound, ServiceError, TooLarge
from models.settings import Settings


def fetched(settings: Settings, url: str, *, stored: bool = True) -> tuple[bytes, bool]:
    """Return the bytes at an address and whether they are on disk; check what was observed."""
    outcomes: list[str] = []

    async def main() -> tuple[bytes, bool]:
        storage = Storage.from_settings(settings) if stored else None
        limits = FetchLimits.from_settings(settings)
        fetcher = Fetcher(limits, lambda outcome, _: outcomes.append(outcome), storage=storage)
        try:
            blob = await fetcher.fetch(url, NEVER)
        finally:
            await fetcher.aclose()
        with blob.shown():
            return blob.read(), blob.on_disk

    try:
        return asyncio.run(main())
    finally:
        assert len(outcomes) == 1


@pytest.mark.parametrize(("size", "on_disk"), [(10, False), (THRESHOLD + 1, True)])
def test_an_image_is_read_from_an_allowed_folder(tmp_path: Path, size: int, on_disk: bool) -> None:
    (tmp_path / "a.jpg").write_bytes(bytes(size))
    settings = Settings(storage_allow=(tmp_path.as_uri(),))
    assert fetched(settings, (tmp_path / "a.jpg").as_uri()) == (bytes(size), on_disk)


@pytest.mark.parametrize(
    ("url", "error", "match"),
    [
        ("file:///etc/passwd", AddressRefused, "DARKROOM_STORAGE_ALLOW"),
        ("s3://bucket/a.jpg", AddressRefused, "DARKROOM_STORAGE_ALLOW"),
        ("{folder}/none.jpg", NotFound, "there is no such file"),
        ("{folder}/../a.jpg", InvalidParameter, "not allowed"),
        ("{folder}/large.jpg", TooLarge, "DARKROOM_MAX_IMAGE_BYTES"),
    ],
)
def test_every_other_address_is_its_own_error(
    tmp_path: Path, url: str, error: type[ServiceError], match: str
) -> None:
    (tmp_path / "large.jpg").write_bytes(bytes(1001))
    settings = Settings(storage_allow=(tmp_path.as_uri(),), max_image_bytes=1000)
    with pytest.raises(error, match=match):
        fetched(settings, url.format(folder=tmp_path.as_uri()))


def test_without_storage_the_refusal_names_the_setting(tmp_path: Path) -> None:
    with pytest.raises(AddressRefused, match="DARKROOM_STORAGE_ALLOW"):
        fetched(Settings(), (tmp_path / "a.jpg").as_uri(), stored=False)


class SlowStorage(Storage):
    """Storage whose files come once they are `released`; `begun` has the last letters of them."""

    def __init__(self) -> None:
        super().__init__({})
        self.begun = ""
        self.released = asyncio.Event()

    def readable(self, address: str) -> Location:
        return parse(address)

    async def pieces(self, location: Location, _most: int) -> AsyncGenerator[bytes, None]:
        self.begun += str(location)[-1]
        await self.released.wait()
        yield b"image"


@pytest.mark.parametrize(("client", "begun"), [("one", "abcx"), (LOCAL, "abcd")])
async def test_a_client_with_slow_files_leaves_turns_to_others_but_the_command_line_has_no_share(
    client: str, begun: str
) -> None:
    storage = SlowStorage()
    fetcher = Fetcher(FetchLimits.from_settings(Settings(fetch_concurrency=4)), storage=storage)
    tasks = [
        asyncio.create_task(
            fetcher.fetch(f"file:///{name}", NEVER, "two" if name in "xy" else client)
        )
        for name in "abcdefxy"
    ]
    for _ in range(9):
        await asyncio.sleep(0)
    assert storage.begun == begun
    storage.released.set()
    for blob in await asyncio.gather(*tasks):
        blob.close()
    await fetcher.aclose()
