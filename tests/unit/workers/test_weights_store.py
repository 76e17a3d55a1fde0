"""Published weights are downloaded once and verified whole; settings choose among them."""

import hashlib
import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import numpy as np
import pytest

from models.networks.registry import BUNDLED, CATALOGUE, NETWORKS, RESNET18
from models.networks.spec import PublishedWeights
from models.settings import Settings
from models.weights.sources import Auto, LocalFile, Random, WeightsSource, resolve
from workers import weights_store
from workers.weights_store import (
    PAUSES,
    Status,
    WeightsCorrupt,
    WeightsStore,
    WeightsUnavailable,
    verified_sha256,
)

BODY = np.random.default_rng(0).bytes(300_000)
CUT = 123_457


@dataclass
class Origin(httpx.BaseTransport):
    """A file server; the next requests use up `breaks` and `statuses`, an entry each."""

    body: bytes = BODY
    asked: int = 0
    breaks: list[int] = field(default_factory=list)
    """Hang up after this many bytes of the answer's body."""
    statuses: list[int] = field(default_factory=list)
    """Answer with this status and no file."""
    before_answer: Callable[[], object] = lambda: None

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if request.url.host == "nowhere":
            raise httpx.ConnectError("refused")
        self.asked += 1
        self.before_answer()
        if self.statuses:
            return httpx.Response(self.statuses.pop(0))
        return httpx.Response(200, content=self._pieces())

    def _pieces(self) -> Iterator[bytes]:
        yield self.body[: self.breaks[0] if self.breaks else None]
        if self.breaks:
            raise httpx.ReadError(f"it ended after {self.breaks.pop(0)} bytes")


@pytest.fixture
def server() -> Origin:
    return Origin()


@pytest.fixture
def published() -> PublishedWeights:
    url, digest = "https://example.org/file", hashlib.sha256(BODY).hexdigest()
    return PublishedWeights("resnet18", "tiny", url, "tiny.pth", len(BODY), digest, "imagenet1k")


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the pauses that the store would have made, in seconds."""
    found: list[float] = []
    monkeypatch.setattr(weights_store, "time", SimpleNamespace(sleep=found.append))
    return found


@pytest.fixture
def store(tmp_path: Path, server: Origin, monkeypatch: pytest.MonkeyPatch) -> WeightsStore:
    monkeypatch.setattr(weights_store, "new_client", lambda: httpx.Client(transport=server))
    return WeightsStore(tmp_path / "cache")


def files(store: WeightsStore) -> list[str]:
    """Return the names of the files in the cache folder, without the lock."""
    found = sorted(path.name for path in (store.cache_folder / "weights").iterdir())
    return [name for name in found if not name.endswith(".lock")]


def place(store: WeightsStore, published: PublishedWeights, body: bytes) -> Path:
    path = store.path(published)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(body)
    return path


def test_a_file_is_downloaded_once_and_has_its_name_after_the_last_byte(
    store: WeightsStore, published: PublishedWeights, server: Origin, pauses: list[float]
) -> None:
    seen: list[list[str]] = []
    server.before_answer = lambda: seen.append(files(store))
    server.breaks = [CUT]
    for _ in range(2):
        path = store.fetch(published)
        assert path == store.cache_folder / "weights" / "tiny.pth"
        assert path.read_bytes() == BODY
    assert seen == [[], ["tiny.pth.part"]]
    assert files(store) == ["tiny.pth"]
    assert pauses == [0.5]


@pytest.mark.parametrize(
    ("broken", "problem", "tries"),
    [
        ({"breaks": [1000] * 5}, "failed", 5),
        ({"statuses": [408, 429, 500, 502, 503]}, "answers HTTP 503", 5),
        ({"statuses": [403]}, "answers HTTP 403", 1),
        ({"statuses": [404]}, "answers HTTP 404", 1),
        ({"body": bytes(len(BODY))}, "sent sha256", 1),
        ({"body": BODY[:-1]}, "sent sha256", 1),
        ({"body": BODY * 2}, "sends too much", 1),
    ],
)
def test_a_download_that_cannot_succeed_is_given_up_and_leaves_the_old_file(
    store: WeightsStore,
    published: PublishedWeights,
    server: Origin,
    pauses: list[float],
    broken: dict[str, Any],
    problem: str,
    tries: int,
) -> None:
    place(store, published, b"bad")
    for name, value in broken.items():
        setattr(server, name, value)
    with pytest.raises(WeightsUnavailable, match=problem):
        store.fetch(published)
    assert server.asked == tries
    assert pauses == [*PAUSES][: tries - 1]
    assert store.path(published).read_bytes() == b"bad"


def test_a_server_that_cannot_be_reached_is_given_up_at_once_with_what_to_do(
    store: WeightsStore, published: PublishedWeights, pauses: list[float]
) -> None:
    nowhere = replace(published, url="https://nowhere/file")
    with pytest.raises(WeightsUnavailable) as refused:
        store.fetch(nowhere)
    assert pauses == []
    for advice in (
        "darkroom weights fetch tiny",
        f"copy tiny.pth (sha256 {published.sha256})",
        f"to {store.path(published)}",
        "set DARKROOM_WEIGHTS",
    ):
        assert advice in str(refused.value)


def test_two_fetches_at_a_time_download_once(
    store: WeightsStore,
    published: PublishedWeights,
    server: Origin,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    second_waits = threading.Event()
    server.before_answer = lambda: second_waits.wait(20)
    log = logging.getLogger("darkroom.weights")
    monkeypatch.setattr(log, "info", lambda *_: second_waits.set())
    with ThreadPoolExecutor(2) as pool:
        paths = list(pool.map(store.fetch, [published, published]))
    assert second_waits.is_set()
    assert [path.read_bytes() == BODY for path in paths] == [True, True]
    assert server.asked == 1


def test_a_flipped_byte_is_found_and_the_file_not_opened_but_replaced(
    store: WeightsStore, published: PublishedWeights
) -> None:
    flipped = bytearray(BODY)
    flipped[CUT] ^= 1
    path = place(store, published, bytes(flipped))
    assert store.status(published) is Status.PRESENT
    with pytest.raises(WeightsCorrupt) as found:
        store.open_verified(published)
    actual = hashlib.sha256(flipped).hexdigest()
    assert (found.value.path, found.value.actual) == (path, actual)
    assert store.fetch(published).read_bytes() == BODY
    assert store.open_verified(published) == path


def test_the_state_of_a_file_is_known_by_its_size(
    store: WeightsStore, published: PublishedWeights
) -> None:
    with pytest.raises(WeightsUnavailable, match=r"it is not here\. Where there is a network, run"):
        store.open_verified(published)
    assert store.status(published) is Status.ABSENT
    place(store, published, b"short")
    assert store.status(published) is Status.PARTIAL
    assert store.listing() == tuple(
        (pinned, store.path(pinned), Status.ABSENT) for pinned in CATALOGUE.values()
    )
    assert len(CATALOGUE) == len(NETWORKS)


def asked(weights: str, **others: object) -> Settings:
    return Settings.model_validate({"weights": weights, **others})


def resolved(settings: Settings) -> WeightsSource:
    return resolve(settings, RESNET18)


DIGEST = "a" * 64
LABELS = {"weights_labels": "labels.txt", "weights_sha256": DIGEST}


@pytest.mark.parametrize(
    ("weights", "others", "source"),
    [
        ("auto", {}, Auto(CATALOGUE["imagenet1k_v1"], BUNDLED)),
        ("bundled", {}, BUNDLED),
        ("imagenet1k_v1", {}, CATALOGUE["imagenet1k_v1"]),
        ("random", {}, Random(0)),
        ("random:0", {}, Random(0)),
        ("random:7", {}, Random(7)),
        *(
            (name, LABELS, LocalFile(Path(name), Path("labels.txt"), DIGEST))
            for name in ("own.pth", "folder/own.safetensors", "/abs/OWN.PTH")
        ),
        (
            "~/own.pth",
            {"weights_labels": "~/labels.txt"},
            LocalFile(Path("/home/me/own.pth"), Path("/home/me/labels.txt"), None),
        ),
    ],
)
def test_the_setting_names_a_source(
    weights: str, others: dict[str, str], source: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert resolved(asked(weights, **others)) == source


def test_a_file_without_labels_is_refused() -> None:
    with pytest.raises(ValueError, match=r"own\.pth needs labels.*DARKROOM_WEIGHTS_LABELS"):
        resolved(asked("own.pth"))


def test_labels_or_a_digest_for_weights_that_bring_their_own_are_refused() -> None:
    for weights in ("auto", "bundled", "imagenet1k_v1", "random:7"):
        for other in ({"weights_labels": "l.txt"}, {"weights_sha256": "a" * 64}):
            with pytest.raises(ValueError, match=f"'{weights}' bring their own labels and digest"):
                resolved(asked(weights, **other))


def test_anything_else_is_refused_with_the_choices() -> None:
    for weights, hint in [
        ("imagenet1k", r"did you mean 'imagenet1k_v1'\? "),
        ("randon", r"did you mean 'random'\? "),
        ("random:x", r"did you mean 'random'\? "),
        ("", ""),
        ("~nobody", ""),
    ]:
        choices = (
            r"there are auto, bundled, imagenet1k_v1, random, random:SEED and files named \*\.pth"
        )
        with pytest.raises(ValueError, match=f"no weights '{weights}'; {hint}{choices}"):
            resolved(asked(weights))


def test_a_file_of_one_s_own_is_verified_when_a_digest_was_set(tmp_path: Path) -> None:
    path = tmp_path / "own.pth"
    path.write_bytes(BODY)
    digest = hashlib.sha256(BODY).hexdigest()
    assert verified_sha256(path, None) == verified_sha256(path, digest)
    with pytest.raises(WeightsCorrupt, match=f"{digest} instead of {'0' * 64}"):
        verified_sha256(path, "0" * 64)


def test_a_missing_file_of_one_s_own_is_named(tmp_path: Path) -> None:
    with pytest.raises(WeightsUnavailable, match=r"cannot read the weights .*own\.pth: No such"):
        verified_sha256(tmp_path / "own.pth", None)
