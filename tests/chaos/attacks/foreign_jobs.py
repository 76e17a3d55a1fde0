"""Jobs that reach for what is not theirs: foreign files, internal addresses, jobs of others.

Promise: nothing outside the allow-list is read, listed, written or called, and no answer tells of
its content; for everybody but its owner a job does not exist.
"""

import json
import os
import time
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

from tests.chaos.attacks.odd_jobs import FLAGS
from tests.chaos.attacks.odd_origins import INTERNAL, origin
from tests.chaos.attacks.odd_streams import image_uri
from tests.chaos.harness.attack import Finding, Outcome, Steps, Target
from tests.chaos.harness.http import ask, connect, post
from tests.pictures import jpeg

_LINES = "application/x-ndjson"
_MAKE = "/jobs?operation=classify"

ALLOWED = (*FLAGS, "--storage-allow", "file://{folder}/allowed")
WEBHOOKS = (*FLAGS, "--webhook-secret", "whsec_MTIzNDU2Nzg5MDEyMzQ1Njc4OTAxMjM0NTY3ODkw")


def job_addresses(target: Target) -> Steps:
    """Name files outside the allow-list, by `..`, links, escapes and other schemes."""
    folder = Path(target.folder)
    allowed, secret = folder / "allowed", folder / "secret.jpg"
    allowed.mkdir()
    secret.write_bytes(jpeg(1))
    (allowed / "good.jpg").write_bytes(jpeg(2))
    for name, goal in (
        ("link.jpg", secret),
        ("out", folder),
        ("root", Path("/")),
        ("self", allowed),
    ):
        (allowed / name).symlink_to(goal)
    os.mkfifo(allowed / "pipe.jpg")
    root = f"file://{allowed}"
    addresses = (
        f"{root}/good.jpg",
        *(
            f"file://{secret}",
            f"{root}/../secret.jpg",
            f"{root}/%2e%2e/secret.jpg",
            f"{root}/link.jpg",
        ),
        *(
            f"{root}/out/secret.jpg",
            f"{root}/root/etc/passwd",
            f"{root}/pipe.jpg",
            f"{root}/",
            root,
        ),
        *(
            f"{root}/..%2fsecret.jpg",
            f"{root}/%00",
            f"{root}//../secret.jpg",
            f"{root}x/secret.jpg",
        ),
        *(f"file://localhost{secret}", f"file:{secret}", f"FILE://{secret}", f"file:///{secret}"),
        *(
            "file:///proc/self/environ",
            "file:///dev/zero",
            "file:///dev/stdin",
            f"{root}/self/self",
        ),
        *(
            f"file://{folder}/jobs/jobs.sqlite",
            "s3://bucket/key",
            "gs://a/b",
            "az://a/b",
            "file://",
        ),
        *(
            "file://evil/etc/passwd",
            f"{root}/out/../allowed/link.jpg",
            f"{root}?x#y",
            f"{root}/\\..\\a",
        ),
    )
    manifest = b"".join(json.dumps({"url": each}).encode() + b"\n" for each in addresses)
    sources = [f"{_MAKE}&source={_quoted(each)}" for each in addresses]
    targets = [
        f"/jobs?operation=filter&name=invert&destination={_quoted(each)}" for each in addresses
    ]
    yield None
    made = ask(target, post(_MAKE, manifest, _LINES), 30.0)
    yield made
    yield from (ask(target, post(path, b"", _LINES), 30.0) for path in sources)
    yield from (ask(target, post(path, manifest, _LINES), 30.0) for path in targets)
    rows = _results(target, _id(made))
    yield Finding("foreign_files_read", rows.count('"status":"ok"') - 1, most=0, least=0)
    yield Finding("addresses_answered", rows.count('"index":'), least=len(addresses))
    leaks = sum(f'"code":"{code}"' in rows for code in ("undecodable", "unsupported_media"))
    yield Finding("errors_that_tell_of_a_content", leaks, most=0)


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


def job_ids(target: Target) -> Steps:
    """Guess ids of another address's jobs: near ones, parts, patterns, paths, long ones."""
    owner = replace(target, source="127.0.0.88")
    yield None
    made = ask(owner, post(_MAKE, b'{"data": "%b"}\n' % image_uri(), _LINES), 30.0)
    yield made
    id_ = _id(made)
    near = [f"{int(id_, 16) + n:032x}" for n in range(-200, 201)]
    odd = [
        id_[:-1],
        id_ + "0",
        id_.upper(),
        id_[:12],
        id_[:12] + "%25",
        "%25",
        "*",
        "..",
        ".",
        "a" * 64,
    ]
    odd += [
        "a" * 65,
        "%2e%2e%2f" + id_,
        id_ + "%00",
        "'%20OR%201=1--",
        id_ + "/../" + id_,
        "jobs.sqlite",
    ]
    guesses: list[Outcome] = []
    for each in (*near, *odd):
        for words in (
            f"GET /jobs/{each}",
            f"GET /jobs/{each}/results?follow=true",
            f"DELETE /jobs/{each}",
        ):
            request = f"{words} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
            guesses.append(ask(target, request.encode(), 20.0))
    paths = (f"/jobs/{id_}/cancel", f"{_MAKE}&retry_of={id_}")
    guesses += [ask(target, post(path, b"", _LINES), 20.0) for path in paths]
    yield from guesses
    yield Finding("guesses_answered", sum((each.status or 0) < 400 for each in guesses), most=0)
    kept = ask(owner, f"GET /jobs/{id_} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".encode())
    yield Finding("jobs_of_the_owner_left", kept.status == 200, least=1)


def _id(made: Outcome) -> str:
    found: str = json.loads(made.excerpt.partition(',"state"')[0] + "}")["id"]
    return found


def _results(target: Target, id_: str) -> str:
    """Return all records of a job as text."""
    request = f"GET /jobs/{id_}/results?follow=true HTTP/1.0\r\nHost: a\r\n\r\n"
    with connect(target, 60.0) as connection:
        connection.sendall(request.encode())
        return b"".join(iter(lambda: connection.recv(65536), b"")).decode()


def _quoted(text: str) -> str:
    return quote(text, safe="")
