"""The page for people, as a browser behind a firewall has it."""

import io
import re
from html.parser import HTMLParser

import httpx
from PIL import Image

from tests.pictures import jpeg

VOID = {"meta", "link", "input", "tr", "td", "th"}
"""Elements that HTML does not want to be closed."""


class Page(HTMLParser):
    """The attributes of every element, by its name; fails where one is not closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: dict[str, list[dict[str, str | None]]] = {}
        self._open: list[str] = []
        self.feed(text)
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.setdefault(tag, []).append(dict(attrs))
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag


def test_the_page_names_every_endpoint_and_asks_nobody_else(client: httpx.Client) -> None:
    reply = client.get("/docs")
    assert reply.headers["Content-Type"].startswith("text/html")
    assert reply.headers["Content-Security-Policy"].startswith("default-src 'none'")
    assert not re.search(r"https?:|//[a-z]|<script|@import|url\(", reply.text)
    for endpoint in client.get("/openapi.json").json()["paths"]:
        assert endpoint in reply.text


def test_every_link_of_the_page_leads_somewhere(client: httpx.Client) -> None:
    for link in Page(client.get("/docs").text).elements["a"]:
        address = str(link["href"])
        if not address.endswith("/thumbnail"):  # those have a test of their own
            assert client.get(f"/{address}").status_code == 200, address


def test_every_form_works_as_it_stands(client: httpx.Client) -> None:
    text = client.get("/docs").text
    forms = re.findall(r'<form action="(\w+)".*?</form>', text)
    assert forms == ["classify", "filter", "info", "process"]
    for form in re.findall(r"<form.*?</form>", text):
        (action,) = Page(form).elements["form"]
        filled = {
            str(each["name"]): str(each["value"])
            for each in Page(form).elements["input"]
            if "value" in each
        }
        reply = client.post(
            f"/{action['action']}",
            data=filled,
            files={"files": ("a.jpg", jpeg())},
            headers={"Accept": "text/html,image/webp,*/*;q=0.8"},
        )
        assert reply.status_code == 200, reply.text
        if action["action"] == "filter":
            assert Image.open(io.BytesIO(reply.content)).format == "JPEG"
