"""Write the results of a job as a Parquet file, piece by piece: one row for each record.

PyArrow is an extra, so this module is imported only for a client that asks for Parquet.
"""

import asyncio
import base64
import io
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from app.jobs.results import Pieces, Records, decoded, whole_lines

ROWS, GROUP = 8192, 16 << 20
"""Rows, and bytes of records, of a row group, unless it is one record."""

_TEXT, _NUMBER, _VECTOR = pa.string(), pa.int64(), pa.list_(pa.float32())
_ERROR = pa.struct([("code", _TEXT), ("detail", _TEXT)])
_PREDICTION = pa.struct(
    [("label", _TEXT), ("wnid", _TEXT), ("class_id", pa.int32()), ("score", pa.float64())]
)
_IMAGE = pa.struct(
    [
        *(("name", _TEXT), ("media_type", _TEXT), ("width", _NUMBER), ("height", _NUMBER)),
        *(("bytes", _NUMBER), ("data", pa.binary())),
    ]
)
_OWN = [("index", _NUMBER), ("id", _TEXT), ("status", _TEXT), ("image", _IMAGE), ("error", _ERROR)]
SCHEMA = pa.schema(
    [
        *_OWN,
        ("source", _TEXT),
        ("predictions", pa.list_(_PREDICTION)),
        *(("logits", _VECTOR), ("embedding", _VECTOR)),
        ("versions", pa.list_(pa.struct(_OWN))),
    ]
)
"""The columns of every job; a column that the operation does not give is null."""


class _Sink(io.RawIOBase):
    """Holds what is written until it is taken."""

    def __init__(self) -> None:
        self._held, self._at = bytearray(), 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def write(self, data: Any) -> int:
        self._held += data
        self._at += len(data)
        return len(data)

    def taken(self) -> bytes:
        piece = bytes(self._held)
        self._held.clear()
        return piece


async def results_parquet(records: Records) -> Pieces:
    """Yield a Parquet file of records. The memory that it takes is that of one row group."""
    sink, rows, size = _Sink(), list[dict[str, Any]](), 0
    with pq.ParquetWriter(sink, SCHEMA, compression="zstd") as writer:
        async for text in whole_lines(records):
            rows += await asyncio.to_thread(_rows, text)
            size += len(text)
            if len(rows) >= ROWS or size >= GROUP:
                await asyncio.to_thread(writer.write_table, pa.Table.from_pylist(rows, SCHEMA))
                yield sink.taken()
                rows, size = [], 0
        if rows:
            await asyncio.to_thread(writer.write_table, pa.Table.from_pylist(rows, SCHEMA))
    yield sink.taken()


def _rows(text: bytes) -> list[dict[str, Any]]:
    """Return records with the bytes of images, and the numbers of vectors, in place of base64."""
    records = decoded(text)
    for record in records:
        for name in {"logits", "embedding"} & record.keys():
            if isinstance(record[name], str):
                record[name] = np.frombuffer(base64.b64decode(record[name]), "<f4")
        for each in (record, *record.get("versions", ())):
            if image := each.get("image"):
                image["data"] = base64.b64decode(image["data"]) if "data" in image else None
    return records
