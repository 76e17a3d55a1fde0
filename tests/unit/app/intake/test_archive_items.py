"""Images of a ZIP or TAR that is a body or a file of a form."""

import asyncio
import zipfile
from collections.abc import Callable
from functools import partial
from typing import Any, BinaryIO
from urllib.parse import urlencode

import pytest
from starlette.requests import Request

from app.admission import Admission
from app.admission.permits import Limits
from app.archives.reading import Archive, ArchiveLimits
from app.intake import request_items, spool
from app.intake.item import Item
from app.intake.request_items import PLACES, collect
from app.intake.spool import Blob
from models.domain.errors import BadArchive, MalformedRequest, Overloaded, ServiceError, TooLarge
from models.settings import Settings
from tests.asgi import body_of, cut
from tests.server import PATIENCE
from tests.unit.app.admission.simulation import admitted, held
from tests.unit.app.archives.test_reading import tarred, zipped

FILES = {"a.jpg": b"first", "folder/b.png": b"second" * 1000}


def collected(
    body: bytes,
    kind: str = "application/zip",
    settings: Settings | None = None,
    admission: Admission | None = None,
    query: dict[str, str] | None = None,
    begun: Callable[[asyncio.Task[Any]], object] = lambda _task: None,
) -> tuple[tuple[Item, ...], dict[str, Any]]:
    """Return what intake finds in a body of that type, sent in pieces."""

    async def scenario() -> tuple[tuple[Item, ...], dict[str, Any]]:
        headers = [(b"content-type", kind.encode())]
        scope = {
            "type": "http",
            "method": "POST",
            "path": "/classify",
            "headers": headers,
            "query_string": urlencode(query or {}).encode(),
        }
        task = asyncio.current_task()
        assert task is not None
        begun(task)
        used = admission or Admission(Limits(images=512, bytes=1 << 30, arriving=1 << 30))
        with admitted(used, 1, 0) as permit:
            return await collect(
                Request(scope, body_of(*cut(body, 999))), permit, settings or Settings()
            )

    return asyncio.run(scenario())


def shown(item: Item) -> tuple[str | None, bytes | type[ServiceError]]:
    """Return the source of an item with its bytes or the type of its error."""
    content = item.content
    if isinstance(content, Blob):
        return item.source, content.read()
    assert isinstance(content, ServiceError)
    return item.source, type(content)


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (zipped(FILES), "application/zip"),
        (zipped(FILES), "application/x-zip-compressed"),
        (tarred(FILES.items()), "application/x-tar"),
        (tarred(FILES.items()), "application/zip"),
    ],
)
def test_each_member_is_an_item_with_its_name(body: bytes, kind: str) -> None:
    found = collected(body, kind, query={"top_k": "2"})
    assert [shown(item) for item in found[0]] == list(FILES.items())
    assert found[1] == {"top_k": "2"}


def test_an_archive_on_disk_is_read_with_members_on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool, "THRESHOLD", 100)
    found = collected(zipped(FILES))
    assert [shown(item) for item in found[0]] == list(FILES.items())
    large = found[0][1].content
    assert isinstance(large, Blob)
    assert large.on_disk


def test_what_follows_a_damage_is_one_error_after_the_images_before_it() -> None:
    data = bytearray(tarred(FILES.items()))
    data[1024:1100] = bytes(76)
    found = collected(bytes(data))
    assert [shown(item) for item in found[0]] == [("a.jpg", b"first"), (None, BadArchive)]


def test_too_many_images_are_refused_by_a_text_that_says_what_to_do() -> None:
    body = zipped({f"{n}.jpg": b"1" for n in range(5)})
    with pytest.raises(TooLarge, match=r"takes 4 \(DARKROOM_MAX_IMAGES_PER_REQUEST\).*POST /jobs"):
        collected(body, settings=Settings(max_images_per_request=4))
    assert len(collected(body, settings=Settings(max_images_per_request=5))[0]) == 5


@pytest.mark.parametrize("in_form", [False, True])
def test_reading_ends_when_the_request_is_cancelled(
    in_form: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread goes on until it is told to stop."""
    stopped, reading = list[bool](), list[Callable[[], object]]()

    def open_forever(_file: BinaryIO, limits: ArchiveLimits) -> Archive:
        reading[0]()
        stopped.append(limits.stop.wait(PATIENCE))
        raise BadArchive("the request has ended")

    def begun(task: asyncio.Task[Any]) -> None:
        reading.append(partial(asyncio.get_running_loop().call_soon_threadsafe, task.cancel))

    monkeypatch.setattr(request_items, "open_archive", open_forever)
    body, kind = zipped(FILES), "application/zip"
    if in_form:
        body, kind = form(("x.zip", kind, body)), FORM
    with pytest.raises(asyncio.CancelledError):
        collected(body, kind, begun=begun)
    assert stopped == [True]
    assert PLACES.used == 0


def test_an_archive_without_images_is_refused() -> None:
    with pytest.raises(MalformedRequest, match="no images: only folders"):
        collected(zipped({".hidden": b"1"}))
    with pytest.raises(BadArchive, match="neither a ZIP nor a TAR"):
        collected(b"no archive")
    with pytest.raises(BadArchive, match="more than 164 entries"):
        collected(zipped({f".{n}": b"" for n in range(200)}))


def test_the_bytes_of_the_members_count_as_admitted() -> None:
    admission = Admission(Limits(images=512, bytes=1 << 20, arriving=1 << 30))
    body = zipped({"a.bmp": bytes(1 << 19), "b.bmp": bytes(1 << 19), "c.bmp": bytes(1 << 19)})
    with pytest.raises((Overloaded, TooLarge)):
        collected(body, admission=admission)
    assert held(admission)[1] == 0


def form(*files: tuple[str, str, bytes]) -> bytes:
    """Return a form of files: name, type, content."""
    made = b""
    for name, kind, content in files:
        head = f'Content-Disposition: form-data; name="files"; filename="{name}"\r\n'
        made += f"--b\r\n{head}Content-Type: {kind}\r\n\r\n".encode() + content + b"\r\n"
    return made + b"--b--\r\n"


FORM = "multipart/form-data; boundary=b"


def test_an_archive_of_a_form_gives_its_images_in_its_place() -> None:
    body = form(
        ("1.jpg", "image/jpeg", b"before"),
        ("x.zip", "application/octet-stream", zipped(FILES)),
        ("x", "application/x-tar", tarred(FILES.items())),
        ("broken.zip", "application/zip", b"PK\x03\x04"),
        ("2.jpg", "image/jpeg", b"after"),
    )
    found = collected(body, FORM)
    images = list(FILES.items())
    expected = [("1.jpg", b"before"), *images, *images, ("broken.zip", BadArchive)]
    assert [shown(item) for item in found[0]] == [*expected, ("2.jpg", b"after")]
    assert [item.index for item in found[0]] == list(range(7))


def test_the_images_of_all_archives_of_a_form_count_together() -> None:
    body = form(*[(f"{n}.zip", "application/zip", zipped(FILES)) for n in range(3)])
    with pytest.raises(TooLarge, match="at least 6 images; one request takes 5"):
        collected(body, FORM, Settings(max_images_per_request=5))


def test_an_archive_of_a_form_may_be_larger_than_an_image() -> None:
    files = {f"{n}.jpg": bytes(900) for n in range(9)}
    body = form(("x.zip", "application/zip", zipped(files, zipfile.ZIP_STORED)))
    found = collected(body, FORM, Settings(max_image_bytes=1000))
    assert [shown(item)[1] for item in found[0]] == [bytes(900)] * 9
