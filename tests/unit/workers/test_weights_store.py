import hashlib
import io
import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import httpx
import numpy as np
import pytest

from models.networks.registry import CATALOGUE, NETWORKS
from models.networks.resnet18 import BUNDLED, RESNET18
from models.networks.spec import PublishedWeights
from models.settings import Settings
from models.weights.sources import Auto, LocalFile, Published, Random, WeightsSource, resolve
from tests.range_server import RangeServer
from workers.weights_digest import WeightsCorrupt, WeightsUnavailable, file_sha256, verified_sha256
from workers.weights_store import Status, WeightsStore

BODY = np.random.default_rng(0).bytes(300_000)
CUT = 123_457


@pytest.fixture
def server() -> Iterator[RangeServer]:
    with RangeServer(BODY) as running:
        yield running


@pytest.fixture
def published(server: RangeServer) -> PublishedWeights:
    digest = hashlib.sha256(BODY).hexdigest()
    return PublishedWeights(
        "resnet18", "tiny", server.url, "tiny.pth", len(BODY), digest, "imagenet1k"
    )


@pytest.fixture
def pauses() -> list[float]:
    """Return the pauses that the store would have made, in seconds."""
    return []


@pytest.fixture
def store(tmp_path: Path, pauses: list[float]) -> WeightsStore:
    return WeightsStore(tmp_path / "cache", direct, pauses.append)


def direct() -> httpx.Client:
    """Return a client that ignores the proxies of the environment."""
    return httpx.Client(trust_env=False, timeout=100, follow_redirects=True)


def files(store: WeightsStore) -> list[str]:
    """Return the names of the files in the cache folder, without the lock."""
    found = sorted(path.name for path in (store.cache_folder / "weights").iterdir())
    return [name for name in found if not name.endswith(".lock")]


def place(store: WeightsStore, published: PublishedWeights, body: bytes, suffix: str = "") -> Path:
    path = store.path(published).with_name(published.filename + suffix)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(body)
    return path


def test_a_download_ends_whole_under_its_own_name_and_nothing_else_is_left(
    store: WeightsStore, published: PublishedWeights, server: RangeServer
) -> None:
    path = store.fetch(published)
    assert path == store.path(published) == store.cache_folder / "weights" / "tiny.pth"
    assert path.read_bytes() == BODY
    assert files(store) == ["tiny.pth"]
    assert server.asked == [None]


def test_a_file_that_is_here_is_not_downloaded_again(
    store: WeightsStore, published: PublishedWeights, server: RangeServer
) -> None:
    store.fetch(published)
    store.fetch(published)
    assert len(server.asked) == 1


def test_a_file_copied_into_place_needs_no_network_and_no_writing(
    store: WeightsStore, published: PublishedWeights, server: RangeServer
) -> None:
    place(store, published, BODY)
    store.fetch(published)
    assert server.asked == []
    assert [path.name for path in store.path(published).parent.iterdir()] == ["tiny.pth"]


def test_a_break_is_resumed_where_it_happened_after_a_pause(
    store: WeightsStore, published: PublishedWeights, server: RangeServer, pauses: list[float]
) -> None:
    server.breaks = [CUT]
    assert store.fetch(published).read_bytes() == BODY
    assert server.asked == [None, f"bytes={CUT}-"]
    assert pauses == [0.5]


def test_pauses_grow_until_the_store_gives_up_and_keeps_what_it_has(
    store: WeightsStore, published: PublishedWeights, server: RangeServer, pauses: list[float]
) -> None:
    server.breaks = [1000] * 5
    with pytest.raises(WeightsUnavailable, match="failed"):
        store.fetch(published)
    assert pauses == [0.5, 1.0, 2.0, 4.0]
    assert files(store) == ["tiny.pth.part"]
    assert store.status(published) is Status.PARTIAL


def test_a_later_call_goes_on_where_an_earlier_one_gave_up(
    store: WeightsStore, published: PublishedWeights, server: RangeServer
) -> None:
    place(store, published, BODY[:CUT], ".part")
    assert store.fetch(published).read_bytes() == BODY
    assert server.asked == [f"bytes={CUT}-"]


def test_a_part_that_is_already_whole_is_verified_and_not_asked_for(
    store: WeightsStore, published: PublishedWeights, server: RangeServer
) -> None:
    place(store, published, BODY, ".part")
    assert store.fetch(published).read_bytes() == BODY
    assert server.asked == []


def test_a_server_that_ignores_ranges_sends_everything_anew(
    store: WeightsStore, published: PublishedWeights, server: RangeServer
) -> None:
    server.ignore_range = True
    server.breaks = [CUT]
    assert store.fetch(published).read_bytes() == BODY
    assert server.asked == [None, f"bytes={CUT}-"]


def test_an_answer_to_another_range_is_not_appended(
    store: WeightsStore, published: PublishedWeights, server: RangeServer
) -> None:
    place(store, published, BODY[:CUT], ".part")
    server.range_shift = 5
    assert store.fetch(published).read_bytes() == BODY
    assert server.asked == [f"bytes={CUT}-", None]


def test_an_end_that_was_not_announced_is_a_break(
    store: WeightsStore, published: PublishedWeights, server: RangeServer
) -> None:
    server.declare_length = False
    server.breaks = [CUT]
    assert store.fetch(published).read_bytes() == BODY
    assert server.asked == [None, f"bytes={CUT}-"]


def test_a_part_of_another_file_is_thrown_away_and_the_download_started_over_once(
    store: WeightsStore, published: PublishedWeights, server: RangeServer
) -> None:
    place(store, published, bytes(CUT), ".part")
    assert store.fetch(published).read_bytes() == BODY
    assert server.asked == [f"bytes={CUT}-", None]


def test_wrong_bytes_are_refused_and_nothing_is_left_of_them(
    store: WeightsStore, published: PublishedWeights, server: RangeServer
) -> None:
    server.body = bytes([BODY[0] ^ 1]) + BODY[1:]
    wrong = hashlib.sha256(server.body).hexdigest()
    with pytest.raises(WeightsUnavailable, match=f"sent sha256 {wrong}"):
        store.fetch(published)
    assert files(store) == []
    assert server.asked == [None, None]


@pytest.mark.parametrize("change", [-1, 1])
def test_an_announced_size_that_is_wrong_is_refused_unread(
    store: WeightsStore, published: PublishedWeights, server: RangeServer, change: int
) -> None:
    server.body = BODY[:-1] if change < 0 else BODY + b"!"
    with pytest.raises(WeightsUnavailable, match=f"offers {len(server.body)} bytes instead of"):
        store.fetch(published)
    assert files(store) == []
    assert len(server.asked) == 1


def test_more_bytes_than_published_are_refused_while_they_arrive(
    store: WeightsStore, published: PublishedWeights, server: RangeServer
) -> None:
    server.body, server.declare_length = BODY * 2, False
    with pytest.raises(WeightsUnavailable, match="sends too much"):
        store.fetch(published)
    assert files(store) == []


@pytest.mark.parametrize("status", [408, 429, 500, 503])
def test_a_server_in_trouble_is_asked_again(
    store: WeightsStore, published: PublishedWeights, server: RangeServer, status: int
) -> None:
    server.statuses = [status, status]
    assert store.fetch(published).read_bytes() == BODY
    assert len(server.asked) == 3


@pytest.mark.parametrize("status", [403, 404, 410])
def test_a_server_that_does_not_have_the_file_is_asked_once(
    store: WeightsStore, published: PublishedWeights, server: RangeServer, status: int
) -> None:
    server.statuses = [status]
    with pytest.raises(WeightsUnavailable, match=f"answers HTTP {status}"):
        store.fetch(published)
    assert len(server.asked) == 1


def test_a_server_that_cannot_be_reached_is_given_up_at_once_with_what_to_do(
    store: WeightsStore, published: PublishedWeights, pauses: list[float]
) -> None:
    with RangeServer(b"") as gone:
        nowhere = replace(published, url=gone.url)
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


def test_a_server_lost_in_the_middle_is_waited_for(
    store: WeightsStore, published: PublishedWeights, pauses: list[float]
) -> None:
    with RangeServer(b"") as gone:
        nowhere = replace(published, url=gone.url)
    place(store, published, BODY[:CUT], ".part")
    with pytest.raises(WeightsUnavailable):
        store.fetch(nowhere)
    assert pauses == [0.5, 1.0, 2.0, 4.0]


@pytest.mark.parametrize("error", [ValueError("unknown scheme"), ImportError("no socksio")])
def test_unusable_proxy_settings_are_reported_as_such(
    tmp_path: Path, published: PublishedWeights, error: Exception
) -> None:
    def unusable() -> httpx.Client:
        raise error

    with pytest.raises(WeightsUnavailable, match=f"no connection can be made: {error}"):
        WeightsStore(tmp_path, unusable).fetch(published)


def test_a_cache_folder_that_cannot_be_written_is_reported_as_such(
    tmp_path: Path, published: PublishedWeights
) -> None:
    blocked = tmp_path / "file"
    blocked.touch()
    with pytest.raises(WeightsUnavailable, match=r"the cache folder fails: .*file"):
        WeightsStore(blocked, direct).fetch(published)


class Listener(logging.Handler):
    """Calls back at the first log record that has the words."""

    def __init__(self, words: str, heard: Callable[[], None]) -> None:
        super().__init__()
        self._words, self._heard = words, heard

    def emit(self, record: logging.LogRecord) -> None:
        if self._words in record.getMessage():
            self._heard()


def test_two_fetches_at_a_time_download_once(
    store: WeightsStore, published: PublishedWeights, server: RangeServer
) -> None:
    second_waits = threading.Event()
    server.before_answer = lambda: second_waits.wait(20)
    listener = Listener("waiting for it", second_waits.set)
    logger = logging.getLogger("darkroom.weights")
    level = logger.level
    logger.addHandler(listener)
    logger.setLevel(logging.INFO)
    try:
        with ThreadPoolExecutor(2) as pool:
            paths = list(pool.map(store.fetch, [published, published]))
    finally:
        logger.removeHandler(listener)
        logger.setLevel(level)
    assert second_waits.is_set()
    assert [path.read_bytes() == BODY for path in paths] == [True, True]
    assert server.asked == [None]


def test_the_final_name_appears_only_after_the_last_byte(
    store: WeightsStore, published: PublishedWeights, server: RangeServer
) -> None:
    seen: list[list[str]] = []
    server.before_answer = lambda: seen.append(files(store))
    server.breaks = [CUT]
    store.fetch(published)
    assert seen == [[], ["tiny.pth.part"]]


def test_a_flipped_byte_is_found_and_the_file_not_opened(
    store: WeightsStore, published: PublishedWeights
) -> None:
    path = store.fetch(published)
    flipped = bytearray(BODY)
    flipped[CUT] ^= 1
    path.write_bytes(flipped)
    assert store.status(published) is Status.PRESENT
    for look in (store.verify, store.open_verified):
        with pytest.raises(WeightsCorrupt) as found:
            look(published)
        assert found.value.path == path
        assert found.value.expected == published.sha256
        assert found.value.actual == hashlib.sha256(flipped).hexdigest()


@pytest.mark.parametrize("bad", [bytes(len(BODY)), BODY[:CUT], b""])
def test_a_bad_file_is_replaced_by_a_fetch(
    store: WeightsStore, published: PublishedWeights, bad: bytes
) -> None:
    place(store, published, bad)
    assert store.fetch(published).read_bytes() == BODY


def test_a_bad_file_stays_until_a_good_one_can_replace_it(
    store: WeightsStore, published: PublishedWeights, server: RangeServer
) -> None:
    place(store, published, b"bad")
    server.statuses = [404]
    with pytest.raises(WeightsUnavailable):
        store.fetch(published)
    assert store.path(published).read_bytes() == b"bad"


def test_a_good_file_is_opened_and_a_missing_one_is_explained(
    store: WeightsStore, published: PublishedWeights, server: RangeServer
) -> None:
    with pytest.raises(WeightsUnavailable, match=r"it is not here\. Where there is a network, run"):
        store.open_verified(published)
    assert server.asked == []
    store.fetch(published)
    assert store.open_verified(published) == store.path(published)


def test_status_tells_absent_partial_and_present(
    store: WeightsStore, published: PublishedWeights
) -> None:
    assert store.status(published) is Status.ABSENT
    place(store, published, b"some", ".part")
    assert store.status(published) is Status.PARTIAL
    store.fetch(published)
    assert store.status(published) is Status.PRESENT
    place(store, published, b"short")
    assert store.status(published) is Status.PARTIAL


def test_the_listing_names_the_whole_catalogue(store: WeightsStore) -> None:
    assert store.listing() == tuple(
        (pinned, store.path(pinned), Status.ABSENT) for pinned in CATALOGUE.values()
    )
    assert len(CATALOGUE) == len(NETWORKS)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "progress", "drawn"),
    [
        (io.StringIO, True, True),
        (io.StringIO, None, False),
        (Terminal, None, True),
        (Terminal, False, False),
    ],
)
def test_a_bar_is_drawn_when_asked_for_or_on_a_terminal(
    store: WeightsStore,
    published: PublishedWeights,
    monkeypatch: pytest.MonkeyPatch,
    stream: Callable[[], io.StringIO],
    progress: bool | None,
    drawn: bool,
) -> None:
    stderr = stream()
    monkeypatch.setattr("sys.stderr", stderr)
    store.fetch(published, progress=progress)
    assert ("tiny.pth: 100%" in stderr.getvalue()) is drawn
    assert bool(stderr.getvalue()) is drawn


@pytest.mark.parametrize("ignore_range", [False, True])
def test_the_bar_of_a_resumed_download_ends_at_a_hundred_per_cent(
    store: WeightsStore,
    published: PublishedWeights,
    server: RangeServer,
    capsys: pytest.CaptureFixture[str],
    ignore_range: bool,
) -> None:
    server.ignore_range = ignore_range
    place(store, published, BODY[:CUT], ".part")
    store.fetch(published, progress=True)
    assert "tiny.pth: 100%|" in capsys.readouterr().err.split("\r")[-1]


def asked(weights: str, **others: object) -> Settings:
    return Settings.model_validate({"weights": weights, **others})


def resolved(settings: Settings) -> WeightsSource:
    return resolve(settings, RESNET18)


def test_a_name_of_the_catalogue_means_the_published_file_and_no_other() -> None:
    assert resolved(asked("imagenet1k_v1")) == Published(CATALOGUE["imagenet1k_v1"])


def test_who_asks_for_nothing_gets_imagenet_s_or_the_bundled_weights() -> None:
    assert resolved(Settings()) == Auto(Published(CATALOGUE["imagenet1k_v1"]), BUNDLED)
    assert resolved(asked("bundled")) is BUNDLED


@pytest.mark.parametrize(("weights", "seed"), [("random", 0), ("random:0", 0), ("random:7", 7)])
def test_random_has_a_seed(weights: str, seed: int) -> None:
    assert resolved(asked(weights)) == Random(seed)


@pytest.mark.parametrize("name", ["own.pth", "folder/own.safetensors", "/abs/OWN.PTH"])
def test_a_file_is_known_by_its_suffix_and_comes_with_its_labels(name: str) -> None:
    digest = "a" * 64
    settings = asked(name, weights_labels="labels.txt", weights_sha256=digest)
    assert resolved(settings) == LocalFile(Path(name), Path("labels.txt"), digest)


def test_a_tilde_is_the_home_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    found = resolved(asked("~/own.pth", weights_labels="~/labels.txt"))
    assert found == LocalFile(Path("/home/me/own.pth"), Path("/home/me/labels.txt"), None)


def test_a_file_without_labels_is_refused() -> None:
    with pytest.raises(ValueError, match=r"own\.pth needs labels.*DARKROOM_WEIGHTS_LABELS"):
        resolved(asked("own.pth"))


@pytest.mark.parametrize("weights", ["auto", "bundled", "imagenet1k_v1", "random:7"])
@pytest.mark.parametrize("other", [{"weights_labels": "l.txt"}, {"weights_sha256": "a" * 64}])
def test_labels_or_a_digest_for_weights_that_bring_their_own_are_refused(
    weights: str, other: dict[str, str]
) -> None:
    with pytest.raises(ValueError, match=f"'{weights}' bring their own labels and digest"):
        resolved(asked(weights, **other))


@pytest.mark.parametrize(
    ("weights", "hint"),
    [
        ("imagenet1k", r" \(did you mean 'imagenet1k_v1'\?\)"),
        ("randon", r" \(did you mean 'random'\?\)"),
        ("random:x", r" \(did you mean 'random'\?\)"),
        ("", ""),
        ("~nobody", ""),
    ],
)
def test_anything_else_is_refused_with_the_choices(weights: str, hint: str) -> None:
    choices = r"there are auto, bundled, imagenet1k_v1, random, random:SEED and files named \*\.pth"
    with pytest.raises(ValueError, match=f"no weights '{weights}'{hint}: {choices}"):
        resolved(asked(weights))


def test_a_network_of_onnx_is_named_as_such() -> None:
    with pytest.raises(ValueError, match=r"own\.onnx is a network of ONNX, which is not read"):
        resolved(asked("own.onnx"))


def test_a_file_of_one_s_own_is_verified_when_a_digest_was_set(tmp_path: Path) -> None:
    path = tmp_path / "own.pth"
    path.write_bytes(BODY)
    digest = hashlib.sha256(BODY).hexdigest()
    assert file_sha256(path) == verified_sha256(path, None) == verified_sha256(path, digest)
    with pytest.raises(WeightsCorrupt, match=f"{digest} instead of {'0' * 64}"):
        verified_sha256(path, "0" * 64)


def test_a_missing_file_of_one_s_own_is_named(tmp_path: Path) -> None:
    with pytest.raises(WeightsUnavailable, match=r"cannot read the weights .*own\.pth: No such"):
        verified_sha256(tmp_path / "own.pth", None)
