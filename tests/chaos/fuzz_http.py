"""Mutated images through a running server: is each one answered with 200, 413, 415 or 422?

`python -m tests.chaos.fuzz_http --inputs 100000` starts a server and sends mutated files of every
format (those of `fuzz_codec.py`) in forms of 64, by turns to `/classify`, `/filter` and
`/process`, from `--clients` closed-loop clients. Every hundredth request is a form or a JSON body
that is mutated itself. The promise: no status of 500 or above, of a request or of an item, no
answer later than its deadline, and a server that is ready afterwards. What is refused (503, 429),
requests and items, is counted and sent again. Input n of a seed is always the same: `--start` goes
on where a run ended, and `--state` names a file that keeps the place and the counts. The last line
is JSON; exit code 1 where the promise is broken.
"""

import argparse
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import httpx

from tests.chaos.fuzz_codec import drawn
from tests.chaos.harness.attack import Attack, Steps, Target
from tests.chaos.harness.checkout import HERE, Checkout, under_attack
from tests.chaos.mutations import mutated

BATCH = 64
PATHS = (
    "/classify?top_k=1",
    "/filter?name=invert&format=png",
    '/process?versions=[{"name":"grayscale"}]',
)
DEADLINE = 120.0
ITEM = (200, 413, 415, 422)
REQUEST = (*ITEM, 400)
REFUSED = (429, 503)
TRIES = 8
"""Times that an input is sent which a busy server refuses."""

FORM = "multipart/form-data; boundary=b"


JSON = (
    b'{"images": [{"id": "a", "data": "data:image/png;base64,iVBORw0KGgo="}], "urls": [], '
    b'"ops": [{"name": "median", "size": 5}]}'
)


@dataclass(slots=True)
class Found:
    """What came back; `broken` says what should not have, at most a hundred times."""

    inputs: int = 0
    statuses: Counter[str] = field(default_factory=Counter)
    broken: list[str] = field(default_factory=list)
    slowest: float = 0.0

    def note(self, kind: str, status: int, allowed: Sequence[int], name: str) -> None:
        """Count a status of a request or of an item."""
        self.statuses[f"{kind} {status}"] += 1
        if status not in allowed and len(self.broken) < 100:
            self.broken.append(f"{kind} {status}: {name}")


def fuzz(_target: Target) -> Steps:
    """Describe the attack by mutated images and bodies."""
    yield None


def main() -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=12)
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--front-ends", type=int, default=0)
    parser.add_argument("--state", type=Path, help="where to keep the place and the counts")
    given = parser.parse_args()
    start, found = _resumed(given.state, given.seed, given.start)
    checkout = Checkout(HERE)
    flags = ("--default-deadline", str(DEADLINE), "--max-body-bytes", str(64 << 20))
    began = time.monotonic()
    with under_attack(
        checkout, Attack(fuzz, promise=3, flags=flags), given.front_ends, "127.0.0.1"
    ) as (
        target,
        process,
    ):
        while start < given.inputs:
            end = min(given.inputs, start + 16 * BATCH)
            _send(target, given.seed, range(start, end, BATCH), end, given.clients, found)
            start = end
            _keep(given.state, given.seed, start, found)
            shown = f"{start} inputs, {time.monotonic() - began:.0f} s, {len(found.broken)} broken"
            print(shown, file=sys.stderr, flush=True)
            if process.poll() is not None:
                found.broken.append(f"the server ended with exit code {process.returncode}")
                break
        else:
            ready = httpx.get(f"http://127.0.0.1:{target.port}/readyz", timeout=10).status_code
            if ready != 200:
                found.broken.append(f"/readyz answers {ready} afterwards")
    report = {
        "program": "fuzz_http",
        "command": "python -m tests.chaos.fuzz_http " + " ".join(sys.argv[1:]),
        "commit": checkout.commit(),
        "seed": given.seed,
        "inputs": found.inputs,
        "seconds": round(time.monotonic() - began, 1),
        "statuses": dict(sorted(found.statuses.items())),
        "slowest_s": round(found.slowest, 2),
        "broken": found.broken,
    }
    print(json.dumps(report))
    return int(bool(found.broken))


def _send(
    target: Target, seed: int, starts: Sequence[int], end: int, clients: int, found: Found
) -> None:
    """Send one request for each of `starts`, and for some a mutated body as well."""
    base = f"http://127.0.0.1:{target.port}"
    with (
        httpx.Client(base_url=base, timeout=DEADLINE + 30) as client,
        ThreadPoolExecutor(clients) as pool,
    ):
        list(pool.map(lambda n: _images(client, seed, n, min(end, n + BATCH), found), starts))
        some = [n for n in starts if n // BATCH % 100 == 0]
        list(pool.map(lambda n: _bodies(client, seed, n, found), some))


def _images(client: httpx.Client, seed: int, start: int, end: int, found: Found) -> None:
    """Send a form of mutated images: each has its own answer."""
    inputs = [_input(seed, number) for number in range(start, end)]
    path = PATHS[start // BATCH % len(PATHS)]
    limit = BATCH // 2 if path.startswith("/process") else BATCH  # labels count as images as well
    for first in range(0, len(inputs), limit):
        left = dict(enumerate(inputs[first : first + limit], start + first))
        for _ in range(TRIES):
            left = _sent(client, path, left, found)
            if not left:
                break
        for number in left:
            found.broken.append(f"input {number} was refused {TRIES} times")
    found.inputs += len(inputs)


def _sent(
    client: httpx.Client, path: str, inputs: dict[int, bytes], found: Found
) -> dict[int, bytes]:
    """Send one form of inputs by their numbers; return those that were refused for lack of time."""
    numbers = list(inputs)
    status, text = _posted(client, path, _form(list(inputs.values())), FORM, found)
    if status != 200:
        found.note("request", status, REQUEST if len(inputs) == 1 else (200,), f"{numbers[0]}")
        return {}
    records = [json.loads(line) for line in text.splitlines()]
    if sorted(each["index"] for each in records) != list(range(len(inputs))):
        found.broken.append(f"{len(records)} records for {len(inputs)} inputs from {numbers[0]}")
    refused = {}
    for record in records:
        number, (status, detail) = numbers[record["index"]], _worst(record)
        if status in REFUSED:
            found.statuses[f"refused item {status}"] += 1
            refused[number] = inputs[number]
        else:
            found.note("item", status, ITEM, f"input {number}: {detail}")
    return refused


def _bodies(client: httpx.Client, seed: int, number: int, found: Found) -> None:
    """Send sixteen mutated forms and JSON bodies."""
    form = _form([_input(seed, number), b"second"])
    for n in range(16):
        chance = random.Random(f"{seed}/{number}/{n}")
        good, kind = (form, FORM) if n % 2 else (JSON, "application/json")
        path, body = chance.choice(PATHS), mutated([good], chance)
        status, _ = _posted(client, path, body, kind, found)
        found.note("body", status, REQUEST, f"{n} of input {number}")
    found.inputs += 16


def _input(seed: int, number: int) -> bytes:
    """Return input `number`, the same at every run."""
    return mutated(_seeds(), random.Random(f"{seed}/{number}"))


@cache
def _seeds() -> Sequence[bytes]:
    return drawn()


def _posted(
    client: httpx.Client, path: str, body: bytes, kind: str, found: Found
) -> tuple[int, str]:
    """Return the status and the text of the answer; after a refusal ask again."""
    headers = {"Content-Type": kind, "Accept": "application/x-ndjson"}
    end = time.monotonic() + DEADLINE
    while True:
        begin = time.monotonic()
        try:
            reply = client.post(path, content=body, headers=headers)
        except httpx.HTTPError as error:
            found.broken.append(f"no answer: {error!r}")
            return 0, ""
        found.slowest = max(found.slowest, time.monotonic() - begin)
        if reply.status_code not in REFUSED or time.monotonic() > end:
            return reply.status_code, reply.text
        found.statuses[f"refused {reply.status_code}"] += 1
        time.sleep(0.5)


def _worst(record: dict[str, Any]) -> tuple[int, str]:
    """Return the status and the detail of an item; for /process those of the worst part."""
    errors = [record.get("error"), *(each.get("error") for each in record.get("versions", ()))]
    return max(((each["status"], each["detail"]) for each in errors if each), default=(200, ""))


def _form(files: Sequence[bytes]) -> bytes:
    """Return a multipart body."""
    head = b'--b\r\nContent-Disposition: form-data; name="files"; filename="%d"\r\n\r\n'
    return b"".join(head % n + data + b"\r\n" for n, data in enumerate(files)) + b"--b--\r\n"


def _resumed(path: Path | None, seed: int, start: int) -> tuple[int, Found]:
    """Return where a run with this seed ended, if `path` contains it."""
    if path is None or not path.exists():
        return start, Found()
    kept = json.loads(path.read_text())
    if kept["seed"] != seed:
        raise SystemExit(f"{path} is of seed {kept['seed']}; name another file for seed {seed}")
    counts = Counter(kept["statuses"])
    return kept["next"], Found(kept["inputs"], counts, kept["broken"], kept["slowest"])


def _keep(path: Path | None, seed: int, start: int, found: Found) -> None:
    if path is not None:
        kept = {"seed": seed, "next": start, "inputs": found.inputs, "slowest": found.slowest}
        lists = {"statuses": found.statuses, "broken": found.broken}
        path.write_text(json.dumps({**kept, **lists}))


if __name__ == "__main__":
    sys.exit(main())
