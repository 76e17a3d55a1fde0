"""Records as CSV and Parquet."""

import csv
import json
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from app.bulk import tables
from app.bulk.errors import WrongUsage
from app.bulk.tables import VectorColumn, conversion

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
