"""The page at `/` as HTTP: its files, its headers, and the forms that need no script."""

import re

import httpx
import pytest

from app.page.files import files


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


@pytest.mark.parametrize("name", [name for name in files() if name != "index.html"])
def test_a_file_of_the_page_comes_with_its_type_and_is_not_sent_twice(
    client: httpx.Client, name: str
) -> None:
    reply = client.get(f"/page/{name}")
    assert reply.status_code == 200
    assert reply.content == files()[name].body
    assert reply.headers["Content-Type"] == files()[name].media_type
    again = client.get(f"/page/{name}", headers={"If-None-Match": reply.headers["ETag"]})
    assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize("name", ["nope.js", "index.html", "..%2ffiles.py", "__init__.py"])
def test_other_names_are_404(client: httpx.Client, name: str) -> None:
    assert client.get(f"/page/{name}").status_code == 404


def test_the_page_itself_is_not_sent_twice(client: httpx.Client) -> None:
    tag = client.get("/").headers["ETag"]
    assert client.get("/", headers={"If-None-Match": tag}).status_code == 304


def test_the_page_has_the_forms_of_the_reference(client: httpx.Client) -> None:
    form = r'<form action="\w+" method="post".*?</form>'
    forms = re.findall(form, client.get("/").text)
    assert forms == re.findall(form, client.get("/docs").text)
    assert len(forms) == 4


def test_the_page_is_no_part_of_the_api(client: httpx.Client) -> None:
    paths = client.get("/openapi.json").json()["paths"]
    assert not {path for path in paths if path == "/" or path.startswith("/page")}
