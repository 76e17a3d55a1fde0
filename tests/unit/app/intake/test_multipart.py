"""Multipart bodies, however they are cut on their way."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request
from starlette.types import Message

from app.admission import Admission, Limits
from app.intake.item import Found, Options, Url, check_count
from app.intake.request_items import form_items
from app.intake.spool import Blob
from models.domain.errors import (
    InvalidParameter,
    MalformedRequest,
    Overloaded,
    ServiceError,
    TooLarge,
)
from models.settings import Settings

BOUNDARY = b"--a b"
KIND = f'multipart/form-data; boundary="{BOUNDARY.decode()}"'


def file(content: bytes, filename: str = "a.jpg", name: str = "files") -> bytes:
    head = f'Content-Disposition: form-data; name="{name}"; filename="{filename}"\r\n'
    return head.encode() + b"Content-Type: image/jpeg\r\n\r\n" + content


def field(name: str, content: bytes) -> bytes:
    return f'Content-Disposition: form-data; name="{name}"\r\n\r\n'.encode() + content


def body(*made: bytes, end: bytes = b"--\r\n") -> bytes:
    return b"".join(b"--%s\r\n%s\r\n" % (BOUNDARY, each) for each in made) + b"--" + BOUNDARY + end


def read(
    content: bytes,
    step: int = 1 << 16,
    kind: str = KIND,
    settings: Settings | None = None,
    refusal: ServiceError | None = None,
) -> tuple[list[Found], Options]:
    """Read a form in pieces of `step` bytes, of which `refusal` refuses the fifth."""
    pieces = [content[n : n + step] for n in range(0, len(content), step)] or [b""]
    cut = len(pieces) - 4

    async def receive() -> Message:
        if refusal is not None and len(pieces) == cut:
            raise refusal
        piece = pieces.pop(0)
        return {"type": "http.request", "body": piece, "more_body": bool(pieces)}

    async def scenario() -> tuple[list[Found], Options]:
        request = Request({"type": "http", "headers": [(b"content-type", kind.encode())]}, receive)
        permit = Admission(Limits(images=8, bytes=1 << 20, arriving=1 << 20)).enter()
        return await form_items(request, permit, settings or Settings())

    return asyncio.run(scenario())


def options(content: bytes) -> Options:
    """Return the options of a form without images."""
    found, given_options = read(content)
    assert not found
    return given_options


def files(content: bytes) -> list[tuple[str | None, bytes | ServiceError]]:
    """Return the names and contents of the files of a form without options."""
    found, given_options = read(content)
    assert not given_options
    return [(source, content_of(content)) for content, source, _ in found]


def content_of(content: object) -> bytes | ServiceError:
    if isinstance(content, Blob):
        return content.read()
    assert isinstance(content, ServiceError)
    return content


@given(st.integers(1, 200), st.lists(st.binary(max_size=80), max_size=4))
def test_files_and_fields_come_in_order_however_the_body_is_cut(
    step: int, contents: list[bytes]
) -> None:
    contents = [*contents, b"\r\n--", BOUNDARY]
    made = body(field("top_k", b"3"), *map(file, contents), field("urls", b"x"))
    found, given_options = read(made, step)
    assert given_options == [("top_k", "3")]
    assert found.pop() == (Url("x"), "x", None)
    assert [content_of(content) for content, _, _ in found] == contents


def test_a_file_needs_no_type_and_no_filename() -> None:
    head = b'Content-Disposition: form-data; name="files"\r\nContent-Type: image/png\r\n\r\n'
    found = files(body(head + b"png", field("files", b"\xff\xd8")))
    assert found == [(None, b"png"), (None, b"\xff\xd8")]


def test_a_file_that_is_too_large_is_its_own_error() -> None:
    settings = Settings(max_image_bytes=1024)
    found, _ = read(body(file(b"a"), file(bytes(5000)), file(b"b")), 100, settings=settings)
    first, large, last = (content_of(content) for content, _, _ in found)
    assert (first, last) == (b"a", b"b")
    assert isinstance(large, TooLarge)


@pytest.mark.parametrize("refusal", [TooLarge("too large"), Overloaded("full", 1.0)])
@pytest.mark.parametrize("most", [1024, 10_000])
def test_a_body_that_is_refused_inside_a_file_is_refused_whole(
    most: int, refusal: ServiceError
) -> None:
    made = body(file(b"a"), file(bytes(5000)), file(b"c"), field("top_k", b"3"))
    with pytest.raises(type(refusal), match=str(refusal)):
        read(made, 500, settings=Settings(max_image_bytes=most), refusal=refusal)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no boundary in it",
        body(file(b"x"))[:-6],
        body(b"No-Disposition: x\r\n\r\nx"),
        body(field("top_k", b"\xff")),
    ],
)
def test_what_is_no_form_is_malformed(content: bytes) -> None:
    with pytest.raises(MalformedRequest):
        read(content)


@pytest.mark.parametrize("parameter", ["", f"; boundary={'b' * 300}"])
def test_a_content_type_without_an_ordinary_boundary_is_malformed(parameter: str) -> None:
    with pytest.raises(MalformedRequest, match="boundary"):
        read(body(file(b"x")), kind=f"multipart/form-data{parameter}")


def test_too_many_parts_are_too_large() -> None:
    with pytest.raises(TooLarge):
        read(body(*[field("urls", b"x")] * 200), settings=Settings(max_images_per_request=16))


def test_a_name_is_taken_for_utf_8() -> None:
    head = 'Content-Disposition: form-data; name="files"; filename="é.jpg"\r\n\r\nx'
    found = files(body(head.encode("latin-1")))
    assert found == [("\N{REPLACEMENT CHARACTER}.jpg", b"x")]


@pytest.mark.parametrize("charset", [b"punycode", b"undefined", b"none"])
def test_text_is_utf_8_whatever_charset_is_named(charset: bytes) -> None:
    head = b'Content-Disposition: form-data; name="a"\r\nContent-Type: text/plain; charset='
    made = body(field("_charset_", charset), head + charset + b"\r\n\r\n" + "é".encode())
    assert options(made) == [("a", "é")]


def test_all_text_fields_together_are_bounded() -> None:
    long = [field(f"a{n}", bytes(1 << 20)) for n in range(5)]
    assert len(options(body(*long[:4]))) == 4
    for too_long in (long, [field("a", bytes(3 << 20)), field("b", bytes(3 << 20))]):
        with pytest.raises(TooLarge, match=r"text fields have more than .* together"):
            read(body(*too_long))


def test_a_folded_header_is_read_and_a_form_of_them_refused() -> None:
    def folded(times: int) -> bytes:
        head = b'Content-Disposition: form-data; name="ops"' + b"\r\n a" * times
        return body(head + b"\r\n\r\n[]")

    assert options(folded(10)) == [("ops", "[]")]
    with pytest.raises(TooLarge, match="header"):
        read(folded(3000))


@pytest.mark.parametrize(
    ("disposition", "name"),
    [
        ("filename*=utf-8''%E2%82%AC.jpg", "€.jpg"),
        ("filename=\"EUR.jpg\"; filename*=UTF-8'en'%E2%82%AC%20a.jpg", "€ a.jpg"),
        ("filename*=UTF-8''%E2%82%AC.jpg; filename=\"EUR.jpg\"", "€.jpg"),
        ("filename*=iso-8859-1''%A3.jpg", "£.jpg"),
        ("filename*=\"utf-8''%E2%82%AC.jpg\"", "€.jpg"),
        ("filename*=undefined''%E2.jpg; filename=b.jpg", "b.jpg"),
        ('filename="=?UTF-8?B?4oKsLmpwZw==?="', "=?UTF-8?B?4oKsLmpwZw==?="),
        ('filename="€.jpg"', "€.jpg"),
        ('filename="C:\\Photos\\a.jpg"', "a.jpg"),
        ('filename="\\\\server\\photos\\a.jpg"', "a.jpg"),
        ('filename="a%22b.jpg"', 'a"b.jpg'),
        ('filename="a\\"b.jpg"', 'a"b.jpg'),
        ('filename="folder/a*b.jpg"', "folder/a*b.jpg"),
        (f'filename="{"n" * 3000}"', "n" * 1000),
    ],
)
def test_a_name_is_read_in_each_form_that_clients_send(disposition: str, name: str) -> None:
    head = f'Content-Disposition: form-data; name="files"; {disposition}\r\n\r\nx'
    assert files(body(head.encode())) == [(name, b"x")]


EMPTY = [field("urls", b""), field("urls", b" \t"), field("url", b""), field("top_k", b"")]


def test_fields_that_were_left_empty_count_as_nothing() -> None:
    assert read(body(*EMPTY, field("top_k", b"3"))) == ([], [("top_k", "3")])
    with pytest.raises(MalformedRequest, match="no image: send"):
        check_count(0, Settings())


@pytest.mark.parametrize("name", ["urls", "url"])
def test_an_address_stands_without_the_blanks_around_it(name: str) -> None:
    url = "https://example.org/a.jpg"
    assert read(body(*EMPTY, field(name, f" {url}\r\n".encode()))) == ([(Url(url), url, None)], [])


@pytest.mark.parametrize("kind", ["application/octet-stream", "image/jpeg", "text/plain", ""])
@pytest.mark.parametrize("name", ["files", "file"])
def test_a_file_input_that_was_left_empty_is_nothing(name: str, kind: str) -> None:
    head = f'Content-Disposition: form-data; name="{name}"; filename=""\r\n'
    typed = f"Content-Type: {kind}\r\n" if kind else ""
    assert read(body((head + typed + "\r\n").encode(), field(name, b""))) == ([], [])


def test_an_empty_file_with_a_name_is_a_file() -> None:
    assert files(body(file(b"", "päckchen 1.jpg"))) == [("päckchen 1.jpg", b"")]


@pytest.mark.parametrize("filename", ["blob", "ops.json", ""])
@pytest.mark.parametrize(
    "kind", ["application/json", "text/plain; charset=utf-8", "application/octet-stream"]
)
def test_an_option_may_come_as_a_file_of_text(filename: str, kind: str) -> None:
    head = f'Content-Disposition: form-data; name="ops"; filename="{filename}"\r\n'
    whole = body(f"{head}Content-Type: {kind}\r\n\r\n".encode() + b"\xef\xbb\xbf[]")
    assert options(whole) == [("ops", "[]")]


@pytest.mark.parametrize(
    ("kind", "content"),
    [("image/png", b"x"), ("application/octet-stream", b"\x89PNG"), ("text/plain", bytes(5 << 20))],
)
def test_a_file_of_another_field_that_is_no_text_is_an_error(kind: str, content: bytes) -> None:
    head = 'Content-Disposition: form-data; name="photo"; filename="a.png"\r\n'
    with pytest.raises(InvalidParameter, match="photo: an unknown file field"):
        read(body(f"{head}Content-Type: {kind}\r\n\r\n".encode() + content))
