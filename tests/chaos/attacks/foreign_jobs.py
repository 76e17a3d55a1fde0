"""Jobs whose webhooks are internal addresses.

Promise: no connection reaches an internal address, by any spelling.
"""

import json
import time
from urllib.parse import quote

from tests.chaos.attacks.odd_origins import INTERNAL, origin
from tests.chaos.attacks.odd_streams import image_uri
from tests.chaos.harness.attack import Finding, Outcome, Steps, Target
from tests.chaos.harness.http import ask, connect, post

_LINES = "application/x-ndjson"
_MAKE = "/jobs?operation=classify"

WEBHOOKS = (
    "--data-folder",
    "{folder}/jobs",
    "--webhook-secret",
    "whsec_MTIzNDU2Nzg5MDEyMzQ1Njc4OTAxMjM0NTY3ODkw",
)


def job_webhooks(target: Target) -> Steps:
    """Name internal addresses as webhooks, in every spelling."""
    line = b'{"data": "%b"}\n' % image_uri()
    inside: list[str] = []
    with origin("127.0.0.1", lambda _: b"HTTP/1.1 200 OK\r\n\r\n", inside) as port:
        urls = [each.replace("{p}", str(port)) for each in INTERNAL]
        urls += [each.replace("http://", "https://") for each in urls]
        yield None
        for url in urls:
            found = ask(target, post(f"{_MAKE}&webhook={_quoted(url)}", line, _LINES), 30.0)
            yield found
            if found.status == 202:
                _results(target, _id(found))
        time.sleep(3.0)
        yield Finding("internal_connections", len(inside), most=0)


def _id(made: Outcome) -> str:
    found: str = json.loads(made.excerpt.partition(',"state"')[0] + "}")["id"]
    return found


def _results(target: Target, id_: str) -> str:
    """Return all records of a job as text."""
    request = f"GET /jobs/{id_}/results?follow=true HTTP/1.0\r\nHost: localhost\r\n\r\n"
    with connect(target, 60.0) as connection:
        connection.sendall(request.encode())
        return b"".join(iter(lambda: connection.recv(65536), b"")).decode()


def _quoted(text: str) -> str:
    return quote(text, safe="")
