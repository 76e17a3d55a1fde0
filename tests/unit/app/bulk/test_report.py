"""Records for programs and for people."""

import errno
import json
import os

import pytest

from app.bulk.errors import CannotWrite
from app.bulk.report import human_line, json_line, readable
from darkroom_client.records import FilteredImage, ImageResult, Prediction

LABELLED = ImageResult(
    index=0,
    source="a.jpg",
    status="ok",
    predictions=[Prediction(label="golf ball", wnid="n1", class_id=1, score=0.9834)],
)
FILTERED = ImageResult(
    index=0,
    source="a.jpg",
    status="ok",
    image=FilteredImage(media_type="image/png", width=4, height=3, size=1234),
)
FAILED = b'{"index":0,"source":"%s","status":"error","error":{"detail":"it is no image"}}'


def test_a_record_has_the_members_of_the_server_in_their_order() -> None:
    made = json_line(LABELLED, file="b.png")
    assert made == (
        b'{"index":0,"source":"a.jpg","status":"ok","predictions":'
        b'[{"label":"golf ball","wnid":"n1","class_id":1,"score":0.9834}],"file":"b.png"}\n'
    )
    assert json.loads(json_line(FILTERED))["image"]["bytes"] == 1234


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (json_line(LABELLED), "a.jpg  golf ball 98.3%\n"),
        (json_line(FILTERED, file="b.png"), "a.jpg → b.png  4 × 3, 1,234 bytes\n"),
        (json_line(FILTERED), "a.jpg → standard output  4 × 3, 1,234 bytes\n"),
        (FAILED % b"a.txt", "a.txt  it is no image\n"),
        (FAILED % rb"\u001b[2J.jpg", "\\x1b[2J.jpg  it is no image\n"),
    ],
    ids=["labels", "file", "standard-output", "failure", "name-that-steers"],
)
def test_people_read_a_line_that_cannot_steer_the_terminal(line: bytes, words: str) -> None:
    assert human_line(line) == words


def test_failures_are_red() -> None:
    assert "\x1b[31m" in human_line(FAILED % b"a.txt", colours=True)


def test_a_name_that_is_not_utf_8_is_escaped() -> None:
    assert readable(os.fsdecode(b"caf\xe9 \xc3\xa9.jpg")) == "caf\\xe9 é.jpg"


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (errno.ENOSPC, "out: No space left on device; free some space there, or choose another"),
        (errno.EACCES, "out: Permission denied; choose a place that this user may write to"),
        (errno.ENOENT, "out: No such file or directory; make the folder first"),
        (errno.EROFS, "out: Read-only file system"),
    ],
)
def test_an_error_of_writing_says_what_to_do(number: int, text: str) -> None:
    assert str(CannotWrite.of("out", OSError(number, os.strerror(number)))).startswith(text)


def test_an_error_without_a_number_has_its_own_words() -> None:
    assert str(CannotWrite.of("out", RuntimeError("a loop of links"))) == "out: a loop of links"
