"""Records for programs and for people."""

import json
import os

from app.bulk.report import human_line, json_line
from app.http.problems import problem
from app.responses.records import line
from models.api.schemas import FilteredImage, Prediction, Record
from models.domain.errors import UnsupportedMedia

LABELLED = Record(
    index=0,
    source="a.jpg",
    status="ok",
    predictions=[Prediction(label="golf ball", wnid="n1", class_id=1, score=0.9834)],
)
FILTERED = Record(
    index=0,
    source="a.jpg",
    status="ok",
    image=FilteredImage(media_type="image/png", width=4, height=3, bytes=1234),
)


def failed(source: str = "a.txt") -> Record:
    error = problem(UnsupportedMedia("the bytes are not an image"), None, 0)
    return Record(index=0, source=source, status="error", error=error)


def test_a_record_is_that_of_the_server() -> None:
    assert json_line(LABELLED) == line(LABELLED)


def test_an_error_has_a_code_and_words_but_nothing_of_http() -> None:
    found = json.loads(json_line(failed()))
    assert found["error"] == {
        "code": "unsupported_media",
        "detail": "the bytes are not an image",
    }


def test_people_read_names_labels_and_percent() -> None:
    assert human_line(LABELLED) == "a.jpg  golf ball 98.3%\n"


def test_people_read_where_an_image_was_written() -> None:
    assert human_line(FILTERED, "made/a.png") == "a.jpg → made/a.png  4 × 3, 1,234 bytes\n"
    assert "standard output" in human_line(FILTERED)


def test_people_read_the_reason_of_a_failure() -> None:
    assert human_line(failed()) == "a.txt  the bytes are not an image\n"
    assert "\x1b[31m" in human_line(failed(), colours=True)


def test_the_name_of_a_file_cannot_steer_the_terminal() -> None:
    assert human_line(failed("\x1b[2J.jpg")).startswith("\\x1b[2J.jpg  ")


def test_a_name_that_is_not_utf_8_is_escaped() -> None:
    name = os.fsdecode(b"caf\xe9 \xc3\xa9.jpg")
    shown = "caf\\xe9 é.jpg"
    assert json.loads(json_line(LABELLED.model_copy(update={"source": name})))["source"] == shown
    error = problem(UnsupportedMedia(f"cannot read {name}"), None, 0)
    found = json.loads(json_line(Record(index=0, source=name, status="error", error=error)))
    assert (found["source"], found["error"]["detail"]) == (shown, f"cannot read {shown}")
    assert human_line(FILTERED, name).encode().startswith(f"a.jpg → {shown}  ".encode())
