"""Write records as a Parquet file, with PyArrow: one row for each image, in row groups.

PyArrow is an extra, so this module is imported only when a file ends with `.parquet`.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from app.bulk.outputs.tables import VectorColumn, records_of

ROWS = 8192
"""Most rows of a row group."""

VALUES = 1 << 20
"""Most values of the vectors of a row group: as Python numbers they take 32 bytes each."""

PREDICTION = pa.struct(
    [
        ("label", pa.string()),
        ("wnid", pa.string()),
        ("class_id", pa.int32()),
        ("score", pa.float64()),
    ]
)
ERROR = pa.struct([("code", pa.string()), ("detail", pa.string())])


def write_parquet(lines: Path, path: Path, vector: VectorColumn | None) -> None:
    """Write records: `index`, `source`, `status`, `predictions` or a vector, and `error`.

    A vector is a list of float32, or text if it is base64. The memory that it takes is that of one
    row group.
    """
    schema = _schema(vector)
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for rows in _groups(records_of(lines), vector):
            writer.write_table(pa.Table.from_pylist(rows, schema=schema))


def _schema(vector: VectorColumn | None) -> Any:
    found = ("predictions", pa.list_(PREDICTION))
    if vector is not None:
        found = (vector.name, pa.string() if vector.as_base64 else pa.list_(pa.float32()))
    own = [("index", pa.int64()), ("source", pa.string()), ("status", pa.string())]
    return pa.schema([*own, found, ("error", ERROR)])


def _groups(
    records: Iterator[dict[str, Any]], vector: VectorColumn | None
) -> Iterator[list[dict[str, Any]]]:
    rows: list[dict[str, Any]] = []
    values = 0
    for record in records:
        rows.append(record)
        values += len(record.get(vector.name, ())) if vector else 0
        if len(rows) >= ROWS or values >= VALUES:
            yield rows
            rows, values = [], 0
    if rows:
        yield rows
