"""Bodies: their charge and their bounds; packed bodies, with no long piece on the event loop."""

import asyncio
import gzip
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from app.admission import Admission, Limits, Permit
from app.admission.counters import Total
from app.http import problems
from app.intake.body import ALLOWANCE, MOST_MEMBERS, PIECE, coding_of, counted, unpacked
from models.domain.errors import MalformedRequest, Overloaded, TooLarge, UnsupportedCoding
from tests.asgi import body_of, cut
from tests.unit.app.admission.simulation import held

MOST = 1 << 30


def raw_deflate(content: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(content) + packer.flush()


def read(
    chunks: Sequence[bytes],
    coding: str,
    grow: Callable[[int], None] = lambda _n_bytes: None,
    most: int | None = MOST,
) -> bytes:
    """Return the unpacked body whose packed form comes in chunks."""

    async def scenario() -> bytes:
        headers = [(b"content-encoding", coding.encode()), (b"content-length", b"9")]
        scope = {"type": "http", "headers": headers}
        body = unpacked(scope, body_of(*chunks), coding_of(scope), most, grow)
        assert scope["headers"] == []
        found = b""
        while (message := await body())["type"] == "http.request":
            found += message["body"]
            if not message["more_body"]:
                assert (await body())["type"] == "http.disconnect"
                break
        return found

    return asyncio.run(scenario())


@pytest.mark.parametrize("n", [0, 1, PIECE, PIECE + 1, 3_000_000])
@pytest.mark.parametrize("size", [1000, 1 << 20])
@pytest.mark.parametrize(
    ("coding", "pack"),
    [
        ("deflate", zlib.compress),
        ("deflate", raw_deflate),
        ("gzip", gzip.compress),
        ("X-GZIP, identity", gzip.compress),
    ],
)
def test_all_bytes_come_out_and_are_counted(
    coding: str, pack: Callable[[bytes], bytes], n: int, size: int
) -> None:
    grown: list[int] = []
    content = bytes(range(256)) * (n // 256 + 1)
    assert read(cut(pack(content[:n]), size), coding, grown.append) == content[:n]
    assert sum(grown) == n


@pytest.mark.parametrize("size", [1, 7, 1 << 20])
def test_members_of_gzip_are_one_body(size: int) -> None:
    packed = b"".join(gzip.compress(each, mtime=0) for each in (b"one", b"", b"two"))
    assert read(cut(packed, size), "gzip") == b"onetwo"
    with pytest.raises(MalformedRequest, match="goes on after the end of its gzip data"):
        read(cut(gzip.compress(b"", mtime=0) * (MOST_MEMBERS + 1), 1 << 16), "gzip")


def test_no_bytes_are_decompressed_on_the_event_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    on_threads: list[bytes] = []
    to_thread = asyncio.to_thread

    async def noted(*call: Any) -> Any:
        on_threads.append(await to_thread(*call))
        return on_threads[-1]

    monkeypatch.setattr(asyncio, "to_thread", noted)
    content = bytes(4_000_000)
    assert read(cut(zlib.compress(content), 1 << 20), "deflate") == content
    assert sum(map(len, on_threads)) == len(content)
    assert max(map(len, on_threads)) <= PIECE


@pytest.mark.parametrize("size", [1, 7, 1 << 20])
@pytest.mark.parametrize("behind", [b"x", bytes(3), zlib.compress(b"more")])
def test_bytes_behind_the_end_are_an_error_however_they_arrive(behind: bytes, size: int) -> None:
    for content in (b"", b"content" * 5):
        with pytest.raises(MalformedRequest, match="goes on after the end of its deflate data"):
            read(cut(zlib.compress(content) + behind, size), "deflate")


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
@pytest.mark.parametrize(
    "body", [b"", b"\x1f", b"no such data", gzip.compress(b"abc", mtime=0)[:-1]]
)
def test_what_is_not_packed_or_cut_off_is_malformed(coding: str, body: bytes) -> None:
    with pytest.raises(MalformedRequest, match=f"(not valid {coding}|ends before its {coding})"):
        read([body], coding)


def test_a_small_body_does_not_become_a_large_one() -> None:
    bomb = gzip.compress(bytes(ALLOWANCE + (2 << 20)), mtime=0)
    for most in (MOST, None):
        with pytest.raises(TooLarge, match="compressed body becomes more than"):
            read(cut(bomb, 1 << 10), "gzip", most=most)
    with pytest.raises(TooLarge, match="at most 999 bytes"):
        read([gzip.compress(bytes(1000))], "gzip", most=999)


@pytest.mark.parametrize("given", [[], [b""], [b"identity"], [b"Identity, identity"]])
def test_a_body_may_say_that_it_is_not_packed(given: list[bytes]) -> None:
    assert coding_of({"headers": [(b"content-encoding", each) for each in given]}) == ""


@pytest.mark.parametrize("given", ["br", "zstd", "gzip, gzip", "gzip,deflate", "aes128gcm", "x"])
def test_any_other_coding_is_named_and_the_answer_says_which_are_read(given: str) -> None:
    with pytest.raises(UnsupportedCoding, match=f"Content-Encoding is {given};") as error:
        coding_of({"headers": [(b"content-encoding", given.encode())]})
    for path in ("/classify", "/v2/models/m/infer"):
        answer = problems.answer(error.value, {"path": path})
        assert answer.status_code == 415
        assert answer.headers["accept-encoding"] == "gzip, deflate"


def door() -> Admission:
    return Admission(Limits(images=8, bytes=1 << 20, arriving=1 << 20))


def charged(chunks: Sequence[bytes], permit: Permit, most: int) -> int:
    """Return the bytes read until the body ends."""

    async def scenario() -> int:
        size, bounded = 0, counted(body_of(*chunks), permit, most)
        while (message := await bounded())["type"] == "http.request":
            size += len(message["body"])
        return size

    return asyncio.run(scenario())


def test_bytes_that_are_announced_and_do_not_come_keep_nobody_out() -> None:
    admission = door()
    idle = [admission.enter() for _ in range(8)]
    for permit in idle:
        permit.arrives(1)
    with admission.enter() as permit:
        assert charged([bytes(1000)], permit, 1 << 20) == 1000
    for permit in idle:
        permit.release()
    assert admission.counters.total(Total.ARRIVING) == 0


def test_one_byte_over_the_limit_is_too_large_and_the_error_names_limit_and_setting() -> None:
    admission = door()
    with admission.enter() as permit:
        assert charged([bytes(30), bytes(20)], permit, 50) == 50
        assert held(admission) == (1, 50)
    with (
        door().enter() as permit,
        pytest.raises(TooLarge, match=r"takes 50 \(DARKROOM_MAX_BODY_BYTES\)"),
    ):
        charged([bytes(50), b"x"], permit, 50)


def test_a_body_that_does_not_fit_beside_others_is_shed_while_it_comes() -> None:
    admission = door()
    other = admission.enter("10.0.0.1")
    other.arrives(900_000)
    with admission.enter("10.0.0.2") as permit, pytest.raises(Overloaded) as refused:
        charged([bytes(100_000), bytes(100_000)], permit, 1 << 20)
    assert refused.value.reason == "arriving_bytes"
    other.release()
    assert admission.counters.total(Total.ARRIVING) == 0
