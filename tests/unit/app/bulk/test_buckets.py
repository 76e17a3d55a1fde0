"""Buckets as sources, on a real S3 server of this machine."""

import os
from collections.abc import Iterator

import httpx
import pytest

from app.bulk import contents
from app.bulk.errors import WrongUsage
from app.bulk.sources import Sources, allowed
from app.bulk.walk import Choice, Source
from app.storage.buckets import entries, names_below
from app.storage.location import parse
from models.settings import Settings
from tests.object_stores import BUCKET, s3
from tests.server import NO_TLS, PATIENCE

pytest.importorskip("obstore")
pytest.importorskip("moto")

NAMES = ("b.jpg", "a/c.PNG", "a/raw/d.jpg", "a.txt", ".thumbnails/b.jpg", "ü x%20.webp")


@pytest.fixture(scope="module")
def root() -> Iterator[str]:
    """Return the address of a prefix with objects of NAMES."""
    with s3() as environment, pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            patch.delenv(name)
        for name, value in environment.items():
            patch.setenv(name, value)
        import obstore
        from obstore.store import S3Store

        for name in NAMES:
            obstore.put(S3Store(BUCKET), f"photos/{name}", b"x")
        for name in ("photos", "photos/a"):  # as the console makes folders
            url = f"{environment['AWS_ENDPOINT_URL']}/{BUCKET}/{name}/"
            httpx.put(url, verify=NO_TLS, timeout=PATIENCE).raise_for_status()
        yield f"s3://{BUCKET}/photos"


def test_a_prefix_stands_for_its_images_in_the_order_of_their_keys(root: str) -> None:
    found = [*Sources([root])]
    assert [each.place for each in found] == ["a/c.PNG", "a/raw/d.jpg", "b.jpg", "ü x%20.webp"]
    assert found[3].name == f"{root}/ü x%20.webp"
    assert [each.name for each in Sources([f"{root}/"])] == [each.name for each in found]


async def test_objects_that_mark_folders_are_no_files(root: str) -> None:
    location = parse(root)
    assert {*names_below(location)} == {*NAMES}
    hidden = {".thumbnails/b.jpg"}
    assert {each async for each in entries(location)} == {*NAMES} - hidden


def test_patterns_choose_among_the_objects(root: str) -> None:
    found = Sources([root], Choice(("*.jpg",), ("raw",)))
    assert [each.place for each in found] == ["b.jpg"]
    hidden = Sources([root], Choice((".thumbnails/*",)))
    assert [each.place for each in hidden] == [".thumbnails/b.jpg"]


def test_an_address_of_an_image_is_one_source_that_is_fetched(root: str) -> None:
    sources = Sources([f"{root}/b.jpg"])
    sources.check()
    assert sources.are_named
    assert [*sources] == [Source(f"{root}/b.jpg", "b.jpg")]
    assert contents.content(f"{root}/b.jpg") == f"{root}/b.jpg"


def test_the_arguments_of_a_command_may_be_read(root: str) -> None:
    settings = Settings(storage_allow=("s3://other/",))
    assert allowed(settings, ["photos", root]).storage_allow == ("s3://other/", root)


def test_what_cannot_be_listed_is_refused_before_the_work(root: str) -> None:
    with pytest.raises(WrongUsage, match="no image in it"):
        Sources([f"{root}/none"]).count()
    with pytest.raises(WrongUsage, match=r"s3://X/photos: .*name of the bucket.*\n.*nothing was"):
        Sources(["s3://X/photos"]).check()
