import asyncio
from pathlib import Path

import pytest

from app.fetch.fetcher import Fetcher, FetchLimits
from app.fetch.stored import StoredImages
from models.domain.deadline import NEVER
from models.domain.errors import AddressRefused, InvalidParameter, NotFound, ServiceError, TooLarge
from models.settings import Settings


def fetched(settings: Settings, url: str, *, stored: bool = True) -> tuple[bytes, bool]:
    """Return the bytes at an address and whether they are on disk; check what was observed."""
    outcomes: list[str] = []

    async def main() -> tuple[bytes, bool]:
        images = StoredImages.from_settings(settings) if stored else None
        limits = FetchLimits.from_settings(settings)
        fetcher = Fetcher(limits, lambda outcome, _: outcomes.append(outcome), stored=images)
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


@pytest.mark.parametrize(("size", "on_disk"), [(10, False), (2 << 20, True)])
def test_an_image_is_read_from_an_allowed_folder(tmp_path: Path, size: int, on_disk: bool) -> None:
    (tmp_path / "a.jpg").write_bytes(bytes(size))
    settings = Settings(storage_allow=(tmp_path.as_uri(),), spool_bytes=1 << 20)
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


def test_without_storage_only_http_is_fetched(tmp_path: Path) -> None:
    with pytest.raises(InvalidParameter, match="only http and https"):
        fetched(Settings(), (tmp_path / "a.jpg").as_uri(), stored=False)
