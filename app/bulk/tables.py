"""The formats of a file of records, by its suffix: JSON Lines, CSV or Parquet."""

import csv
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec

from app.bulk.errors import WrongUsage
from app.bulk.journal import Convert, records_of

COLUMNS = (
    "index",
    "source",
    "status",
    "rank",
    "label",
    "score",
    "class_id",
    "wnid",
    "error_code",
    "error_detail",
    "warning",
)
"""The columns of a CSV of labels; docs/bulk.md describes them."""


FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""Beginnings of cells that spreadsheets compute."""


@dataclass(frozen=True, slots=True)
class VectorColumn:
    """The member of records that is a vector, in place of labels, and whether it is base64."""

    name: str
    as_base64: bool


def conversion(path: Path, vector: VectorColumn | None) -> Convert | None:
    """Return the function that makes a file of this name from JSON Lines; None if it is JSON Lines
    itself.

    WrongUsage where the library of the format is not installed.
    """
    suffix = path.suffix.lower()
    if suffix == ".csv":
        return partial(write_csv, vector=vector)
    if suffix != ".parquet":
        return None
    if find_spec("pyarrow") is None:
        raise WrongUsage(
            f"--out: {path} needs PyArrow, which is not installed: "
            "run `pip install '.[parquet]'` in the checkout of Darkroom, or name a file that ends "
            "with .jsonl or .csv"
        )
    return partial(write_parquet, vector=vector)


def write_csv(lines: Path, path: Path, vector: VectorColumn | None) -> None:
    """Write records as CSV by RFC 4180: UTF-8, a header, CRLF, a row for each prediction.

    A record that is an error, or has a vector, is a single row. A vector of numbers is written as
    JSON. Further text that a spreadsheet would take for a formula begins with an apostrophe.
    """
    own = COLUMNS if vector is None else (*COLUMNS[:3], vector.name, *COLUMNS[-3:])
    with path.open("x", encoding="utf-8", newline="") as file:
        rows = csv.DictWriter(file, own, restval="", extrasaction="ignore")
        rows.writeheader()
        for _, record in records_of(lines):
            rows.writerows(_rows(record, vector))


def _rows(record: Mapping[str, Any], vector: VectorColumn | None) -> Iterator[dict[str, Any]]:
    error = record.get("error", {})
    own = {name: record.get(name, "") for name in (*COLUMNS[:3], "warning")}
    own |= {f"error_{name}": error[name] for name in ("code", "detail") if name in error}
    own = {name: _no_formula(value) for name, value in own.items()}
    if vector is not None and vector.name in record:
        value = record[vector.name]
        own[vector.name] = value if vector.as_base64 else json.dumps(value)
    found = record.get("predictions")
    if not found:
        yield own
        return
    for rank, each in enumerate(found, 1):
        yield {**own, **{name: _no_formula(value) for name, value in each.items()}, "rank": rank}


def write_lines(table: Path, lines: Path, vector: VectorColumn | None) -> None:
    """Write the records of a finished table as JSON Lines: the reverse of its conversion.

    WrongUsage for a table that this command has not made.
    """
    found = _of_csv(table, vector) if table.suffix.lower() == ".csv" else _of_parquet(table)
    try:
        with lines.open("wb") as file:
            file.writelines(msgspec.json.encode(record) + b"\n" for record in found)
    except (KeyError, ValueError, csv.Error) as error:  # also of PyArrow
        raise WrongUsage(
            f"--out: {table} is no table of this command ({error}); name another file"
        ) from None


ROWS = 1024
"""Rows of a table that are in memory at a time: a number of a vector takes 32 bytes there."""


def _of_parquet(table: Path) -> Iterator[dict[str, Any]]:
    import pyarrow.parquet as pq  # an extra

    with pq.ParquetFile(table) as file:
        for batch in file.iter_batches(ROWS):
            for row in batch.to_pylist():
                for each in row.get("predictions") or ():
                    if each["wnid"] is None:
                        del each["wnid"]
                yield {name: value for name, value in row.items() if value is not None}


def _of_csv(table: Path, vector: VectorColumn | None) -> Iterator[dict[str, Any]]:
    with table.open(encoding="utf-8", newline="") as file:
        for _, rows in itertools.groupby(csv.DictReader(file), lambda row: row["index"]):
            yield _record([*rows], vector)


def _record(rows: Sequence[Mapping[str, str]], vector: VectorColumn | None) -> dict[str, Any]:
    """Return the record of rows of a CSV that have the same index."""
    cells = [{name: _as_given(value) for name, value in row.items() if value} for row in rows]
    first = cells[0]
    record: dict[str, Any] = {"index": int(first["index"])}
    record |= {name: first[name] for name in ("source", "status", "warning") if name in first}
    if "rank" in first:
        record["predictions"] = [
            {name: each[name] for name in ("label", "wnid") if name in each}
            | {"class_id": int(each["class_id"]), "score": float(each["score"])}
            for each in cells
        ]
    if vector is not None and vector.name in first:
        value = first[vector.name]
        record[vector.name] = value if vector.as_base64 else json.loads(value)
    if "error_code" in first:
        record["error"] = {"code": first["error_code"], "detail": first.get("error_detail", "")}
    return record


def _as_given(cell: str) -> str:
    """Reverse `_no_formula` for text."""
    return cell[1:] if cell.startswith("'") and cell[1:].startswith(FORMULA) else cell


def _no_formula(value: Any) -> Any:
    """Return a value as a cell that no spreadsheet computes: file names may come from anybody."""
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value


BLOCK = 8 << 20
"""Bytes of JSON Lines that become a row group: PyArrow's threads hold a few of them in memory."""


def write_parquet(lines: Path, path: Path, vector: VectorColumn | None) -> None:
    """Write records with PyArrow, with the columns that docs/bulk.md describes.

    A vector is a list of float32, or text if it is base64.
    """
    import pyarrow as pa  # an extra
    import pyarrow.json as pj
    import pyarrow.parquet as pq

    text = pa.string()
    error = pa.struct([("code", text), ("detail", text)])
    names = [("label", text), ("wnid", text), ("class_id", pa.int32()), ("score", pa.float64())]
    found = ("predictions", pa.list_(pa.struct(names)))
    if vector is not None:
        found = (vector.name, text if vector.as_base64 else pa.list_(pa.float32()))
    own = [("index", pa.int64()), ("source", text), ("status", text)]
    schema = pa.schema([*own, found, ("error", error), ("warning", text)])
    form = pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    with (
        pj.open_json(lines, pj.ReadOptions(block_size=BLOCK), form) as batches,
        pq.ParquetWriter(path, schema, compression="zstd") as writer,
    ):
        for batch in batches:
            writer.write_batch(batch)
