"""The page at `/` as HTTP: its files, its headers, and the forms that need no script."""

import io
import logging
import re
from html import unescape

import httpx
import pytest
from PIL import Image

from app.routes.page import FOLDER
from tests.pictures import jpeg
from tests.server import until


def directives(reply: httpx.Response) -> dict[str, str]:
    policy = reply.headers["Content-Security-Policy"]
    return dict(each.split(" ", 1) for each in policy.split("; "))


def test_scripts_come_from_the_server_alone_and_nothing_may_frame_the_page(
    client: httpx.Client,
) -> None:
    reply = client.get("/")
    allowed = directives(reply)
    assert allowed["default-src"] == "'none'"
    assert allowed["script-src"] == allowed["style-src"] == allowed["connect-src"] == "'self'"
    assert allowed["frame-ancestors"] == allowed["base-uri"] == "'none'"
    assert reply.headers["X-Content-Type-Options"] == "nosniff"
    assert reply.headers["Referrer-Policy"] == "no-referrer"


def test_a_file_of_the_page_comes_whole_with_its_type_and_is_not_sent_twice(
    client: httpx.Client,
) -> None:
    kinds = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
    for path in FOLDER.iterdir():
        if path.name == "index.html":
            continue
        reply = client.get(f"/page/{path.name}", headers={"Range": "bytes=0-3"})
        assert (reply.status_code, reply.headers["Accept-Ranges"]) == (200, "none")
        assert reply.content == path.read_bytes()
        assert reply.headers["Content-Type"].startswith(kinds.get(path.suffix, "image/"))
        known = {"If-None-Match": reply.headers["ETag"]}
        again = client.get(f"/page/{path.name}", headers=known)
        assert (again.status_code, again.content) == (304, b"")


def test_other_names_are_404(client: httpx.Client) -> None:
    for name in ("nope.js", "index.html", "..%2ffiles.py", "__init__.py"):
        assert client.get(f"/page/{name}").status_code == 404


def test_the_reference_is_a_view_of_the_page(client: httpx.Client) -> None:
    page, reference = client.get("/"), client.get("/docs")
    assert reference.text == page.text
    assert directives(reference) == directives(page)


FIELD = re.compile(r'<input name="(.*?)" value="(.*?)">')
FILE = re.compile(r'<input type="file" name="(.*?)"')


def test_every_form_works_as_it_stands(client: httpx.Client) -> None:
    forms = re.findall(r'<form action="(\w+)" method="post"(.*?)</form>', client.get("/").text)
    assert [action for action, _ in forms] == ["classify", "filter", "info", "match", "process"]
    for action, fields in forms:
        reply = client.post(
            f"/{action}",
            data={name: unescape(value) for name, value in FIELD.findall(fields)},
            files=dict.fromkeys(FILE.findall(fields), ("a.jpg", jpeg())),
            headers={"Accept": "text/html,image/webp,*/*;q=0.8"},
        )
        assert reply.status_code == 200, reply.text
        if action == "filter":
            assert Image.open(io.BytesIO(reply.content)).format == "JPEG"


def test_files_and_pictures_of_the_page_write_no_lines_of_info(
    client: httpx.Client, caplog: pytest.LogCaptureFixture
) -> None:
    levels = {"/": "INFO", "/page/main.js": "DEBUG", "/filters/invert/thumbnail": "DEBUG"}
    with caplog.at_level(logging.DEBUG, "darkroom.access"):
        for path in levels:
            client.get(path)
        # A line is written behind its answer; one of an earlier test may come here.
        until(lambda: levels.items() <= {(vars(r)["path"], r.levelname) for r in caplog.records})
