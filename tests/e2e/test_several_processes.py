"""A server of several processes: front ends, a worker, and what happens when one is killed."""

import hashlib
import os
import signal
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
import safetensors.torch
import torch

from models.networks.registry import BUNDLED
from tests.edge import listens
from tests.pictures import jpeg
from tests.server import COLD, FILTERS, PATIENCE, Served, children, get, gone, post, serving, until

TREE = (
    *("--front-ends", "2", "--log-level", "error"),
    *("--default-deadline", "100"),  # a busy machine may take long to start a worker
    *("--grace", "9999"),  # no test may end because it is over
)
RAW = {"Content-Type": "image/jpeg"}


def url(server: Served, path: str) -> str:
    return f"http://127.0.0.1:{server.port}{path}"


def ask(server: Served, body: bytes) -> bytes:
    """Return a filtered image, asked for on a connection of its own."""
    reply = post(url(server, "/filter?name=invert"), content=body, headers=RAW)
    assert reply.status_code == 200, reply.text
    return reply.content


def metric(server: Served, line: str) -> float:
    text = get(url(server, "/metrics")).text
    return next((float(row.split()[-1]) for row in text.splitlines() if row.startswith(line)), 0.0)


@pytest.fixture(scope="module")
def own_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of temporary files of `tree` alone."""
    return tmp_path_factory.mktemp("temporary")


@pytest.fixture(scope="module")
def tree(own_folder: Path) -> Iterator[Served]:
    """Start the server of the first tests of this file; the last of them ends it."""
    mine = FILTERS | {"TMPDIR": str(own_folder)}
    flags = (*TREE, "--body-timeout", "9999", "--drain-timeout", "9999")
    with serving(*flags, program=COLD, environment=mine) as server:
        yield server


def test_a_worker_that_ends_under_load_costs_no_request(tree: Served) -> None:
    images = {seed: ask(tree, jpeg(seed)) for seed in range(6)}
    assert len({*images.values()}) == 6
    ended = children(tree.process.pid)["worker"]

    def one(turn: int) -> bool:
        if turn == 20:
            os.kill(ended, signal.SIGKILL)
        return ask(tree, jpeg(turn % 6)) == images[turn % 6]

    with ThreadPoolExecutor(3) as clients:  # more are refused where a busy machine takes long
        assert all(clients.map(one, range(60)))
    assert children(tree.process.pid)["worker"] != ended


def test_a_front_end_killed_costs_its_own_requests_alone(tree: Served) -> None:
    killed = children(tree.process.pid)["front end 0"]
    os.kill(killed, signal.SIGKILL)
    assert ask(tree, jpeg(1))
    until(lambda: children(tree.process.pid).get("front end 0", killed) != killed)
    assert ask(tree, jpeg(2))


def all_but_the_last_byte(server: Served, body: bytes) -> socket.socket:
    """Open a connection and send a request to filter without its last byte."""
    connection = socket.create_connection(("127.0.0.1", server.port), PATIENCE)
    head = "POST /filter?name=invert HTTP/1.1\r\nHost: localhost\r\nContent-Type: image/jpeg\r\n"
    connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body[:-1])
    return connection


def test_sigterm_finishes_what_was_accepted_and_leaves_nothing_behind(
    tree: Served, own_folder: Path
) -> None:
    bodies = [jpeg(n) for n in range(8)]
    assert list(own_folder.glob("darkroom-metrics-*"))
    pids = children(tree.process.pid).values()
    with ExitStack() as stack:
        accepted = [stack.enter_context(all_but_the_last_byte(tree, body)) for body in bodies]
        arriving = 'darkroom_in_use{limit="arriving_bytes"}'
        until(lambda: metric(tree, arriving) == sum(len(body) - 1 for body in bodies))
        tree.process.send_signal(signal.SIGTERM)
        until(lambda: get(url(tree, "/readyz")).status_code == 503)
        tree.process.send_signal(signal.SIGTERM)  # a second one ends the grace time
        until(lambda: not listens(tree.port))
        for connection, body in zip(accepted, bodies, strict=True):
            connection.sendall(body[-1:])
        assert {connection.recv(12) for connection in accepted} == {b"HTTP/1.1 200"}
    assert tree.process.wait(PATIENCE) == 0
    assert all(gone(pid) for pid in pids)
    assert list(own_folder.glob("darkroom*")) == []


@pytest.mark.slow
def test_nothing_outlives_a_supervisor_that_was_killed() -> None:
    with serving(*TREE, program=COLD, environment=FILTERS) as server:
        found = children(server.process.pid)
        pids = list(found.values())
        assert len(pids) == 3
        os.kill(found["worker"], signal.SIGSTOP)  # it cannot notice the end of its parent
        server.process.kill()
        until(lambda: all(gone(pid) for pid in pids), PATIENCE)


def test_a_database_of_jobs_that_can_never_work_ends_the_server(tmp_path: Path) -> None:
    """A front end finds that when it starts; it would else be started again without end."""
    (data := tmp_path / "data").mkdir()
    (data / "jobs.sqlite3").write_bytes(b"not a database, and none that SQLite could open" * 100)
    flags, log = (*TREE, "--front-ends", "1", "--data-folder", str(data)), tmp_path / "log"
    cold = serving(*flags, log=log, program=COLD, environment=FILTERS)
    with pytest.raises(RuntimeError, match="exit code 2"), cold:
        pass
    assert "cannot be used: file is not a database" in log.read_text()


@pytest.mark.slow
def test_a_rolling_restart_costs_no_request_and_brings_new_settings_and_weights(
    tmp_path: Path,
) -> None:
    file, weights = tmp_path / "darkroom.env", tmp_path / "mine.safetensors"
    labels = {n: tmp_path / f"{n}.txt" for n in (8, 1)}

    def write(most: int, state: dict[str, torch.Tensor]) -> str:
        """Write the settings and the weights; return the digest of the weights."""
        labels[most].write_text("".join(f"{n} of {most}\n" for n in range(10)))
        lines = f"MAX_IMAGES_PER_REQUEST={most}", f"WEIGHTS_LABELS={labels[most]}"
        file.write_text("".join(f"DARKROOM_{line}\n" for line in lines))
        safetensors.torch.save_file(state, tmp_path / "part")
        (tmp_path / "part").replace(weights)
        return hashlib.sha256(weights.read_bytes()).hexdigest()

    state = safetensors.torch.load_file(BUNDLED.path)
    digest, ending, found = write(8, state), threading.Event(), list[tuple[int, str, str]]()

    def client(server: Served) -> None:
        with httpx.Client(timeout=PATIENCE) as kept:
            while not ending.wait(0.02):  # some hundred requests a second
                reply = kept.post(url(server, "/classify"), content=jpeg(), headers=RAW)
                body = reply.json()
                best = body["results"][0]["predictions"][0]["label"]
                found.append((reply.status_code, body["model"]["sha256"], best))

    given = ("--weights", str(weights), "--precision", "fp32", "--settings-file", str(file))
    with serving(*TREE, *given) as server, ThreadPoolExecutor(4) as clients:
        before = set(children(server.process.pid).values())
        new = write(1, {**state, "fc.weight": -state["fc.weight"]})
        running = [clients.submit(client, server) for _ in range(4)]
        try:
            server.process.send_signal(signal.SIGHUP)
            until(lambda: all(gone(old) for old in before))
        finally:
            ending.set()
        for each in running:
            each.result()
        assert {each[:2] for each in found} == {(200, digest), (200, new)}
        best = {(sha256, label) for _, sha256, label in found}
        assert len({label.split()[0] for _, label in best}) == len(best) == 2
        assert {(sha256, label[-1]) for sha256, label in best} == {(digest, "8"), (new, "1")}
        two = {"images": [{"url": "http://localhost/a"}, {"url": "http://localhost/b"}]}
        refused = post(url(server, "/classify"), json=two)
    assert refused.status_code in (413, 422)
    assert "1" in refused.text
