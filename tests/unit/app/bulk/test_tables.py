"""Records as CSV and Parquet."""

import csv
import json
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from app.bulk import tables
from app.bulk.errors import WrongUsage
from app.bulk.journal import records_of
from app.bulk.tables import VectorColumn, conversion, write_lines

LABELLED = {
    "index": 0,
    "source": 'a,"b".jpg',
    "status": "ok",
    "warning": "ten classes",
    "predictions": [
        {"label": "golf ball", "wnid": "n1", "class_id": 8, "score": 0.75},
        {"label": "été", "class_id": 3, "score": 0.25},
    ],
}
FAILED = {
    "index": 1,
    "source": "b.jpg",
    "status": "error",
    "error": {"code": "undecodable", "detail": "line\nbreak"},
}
EMBEDDING = VectorColumn("embedding", as_base64=False)


def converted(
    folder: Path, name: str, *records: object, vector: VectorColumn | None = None
) -> Path:
    convert = conversion(folder / name, vector)
    assert convert is not None
    lines = folder / "lines"
    lines.write_text("".join(json.dumps(each) + "\n" for each in records))
    convert(lines, folder / name)
    return folder / name


def test_a_csv_has_a_row_for_each_prediction_and_each_error(tmp_path: Path) -> None:
    path = converted(tmp_path, "out.csv", LABELLED, FAILED)
    assert path.read_bytes().startswith(b"index,source,status,rank,label,score,class_id,wnid,")
    with path.open(encoding="utf-8", newline="") as file:
        rows = [*csv.DictReader(file)]
    assert [(each["index"], each["rank"], each["label"]) for each in rows] == [
        ("0", "1", "golf ball"),
        ("0", "2", "été"),
        ("1", "", ""),
    ]
    assert rows[0]["source"] == 'a,"b".jpg'
    assert [each["warning"] for each in rows] == ["ten classes", "ten classes", ""]
    assert (rows[2]["error_code"], rows[2]["error_detail"]) == ("undecodable", "line\nbreak")


@pytest.mark.parametrize("first", "=+-@\t\r")
def test_no_cell_of_a_csv_is_a_formula(tmp_path: Path, first: str) -> None:
    """A client chooses the name of its file, and a spreadsheet would compute the name."""
    name = f"{first}HYPERLINK(1).jpg"
    label = {"label": f"{first}1", "class_id": 8, "score": -0.5}
    good = {"index": 0, "source": name, "status": "ok", "predictions": [label]}
    bad = FAILED | {"source": name, "error": {"code": "undecodable", "detail": f"{first}2"}}
    with converted(tmp_path, "out.csv", good, bad).open(encoding="utf-8", newline="") as file:
        rows = [*csv.DictReader(file)]
    assert [each["source"] for each in rows] == [f"'{name}"] * 2
    assert (rows[0]["label"], rows[0]["score"]) == (f"'{first}1", "-0.5")
    assert rows[1]["error_detail"] == f"'{first}2"
    lines = converted(tmp_path, "out.parquet", good)
    assert pq.read_table(lines)["source"].to_pylist() == [name]


def test_a_csv_of_vectors_has_them_as_json(tmp_path: Path) -> None:
    record = {"index": 0, "source": "a.jpg", "status": "ok", "embedding": [0.5, -1.0]}
    path = converted(tmp_path, "out.csv", FAILED, record, vector=EMBEDDING)
    with path.open(encoding="utf-8", newline="") as file:
        rows = [*csv.DictReader(file)]
    assert rows[0]["embedding"] == ""
    assert json.loads(rows[1]["embedding"]) == [0.5, -1.0]


def test_a_parquet_file_has_a_row_for_each_image(tmp_path: Path) -> None:
    rows = pq.read_table(converted(tmp_path, "out.parquet", LABELLED, FAILED)).to_pylist()
    assert rows[0]["predictions"][1] == {
        "label": "été",
        "wnid": None,
        "class_id": 3,
        "score": 0.25,
    }
    assert (rows[0]["error"], rows[0]["warning"]) == (None, "ten classes")
    assert (rows[1]["predictions"], rows[1]["error"]) == (None, FAILED["error"])


def test_row_groups_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "BLOCK", 160)
    record = {"index": 0, "source": "a.jpg", "status": "ok", "embedding": [0.5, -1.0]}
    path = converted(tmp_path, "out.parquet", *[record] * 5, vector=EMBEDDING)
    file = pq.ParquetFile(path)
    assert [file.metadata.row_group(n).num_rows for n in range(file.num_row_groups)] == [2, 2, 1]
    assert file.read().column("embedding")[4].as_py() == [0.5, -1.0]


def test_a_missing_library_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(WrongUsage, match=r"pip install '\.\[parquet\]'"):
        conversion(Path("out.parquet"), None)


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.parametrize("vector", [None, EMBEDDING, VectorColumn("embedding", as_base64=True)])
def test_a_table_gives_back_the_records_that_it_was_made_of(
    suffix: str, vector: VectorColumn | None, tmp_path: Path
) -> None:
    good = LABELLED | {"source": "=1+1.jpg"}
    if vector is not None:
        value = "AAAAPw==" if vector.as_base64 else [0.5, -1.0]
        good = {"index": 0, "source": "-a.jpg", "status": "ok", "embedding": value}
    made = converted(tmp_path, f"out{suffix}", good, FAILED, vector=vector)
    write_lines(made, tmp_path / "back", vector)
    assert [each for _, each in records_of(tmp_path / "back")] == [good, FAILED]
    assert (tmp_path / "back").read_bytes().startswith(b'{"index":0')


def test_a_table_of_another_program_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("name,size\na.jpg,3\n")
    with pytest.raises(WrongUsage, match="is no table of this command"):
        write_lines(tmp_path / "a.csv", tmp_path / "back", None)
