"""Make the record of an item, the same in a reply, a stream, a ZIP and on the command line."""

import base64
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import msgspec
from starlette.types import Scope

from app.http.problems import problem
from app.pipeline.encoded_files import EncodedFile
from app.pipeline.outcomes import Answer, EncodedImage, Processed
from models.codec import Description
from models.domain.errors import ServiceError
from models.domain.job import Labels, Vector
from models.labels import LabelSet
from workers.operations import NetworkOutput

PIECE = 3 << 16
"""Number of bytes that are encoded at a time, in 0.3 ms: a multiple of three, so that only the last
piece is padded."""

_MARK = f"{secrets.token_hex(16)}:"
"""Prefix of all marks. It never leaves the process, so no client can write it into a text."""

_MARKS = re.compile(re.escape(_MARK.encode()) + rb"([0-9]+)\.")


class InlineImages:
    """The images of a JSON text."""

    def __init__(self) -> None:
        self._images: list[EncodedFile] = []

    def add(self, file: EncodedFile) -> str:
        """Return the mark of an image, which the JSON contains until it is sent."""
        self._images.append(file)
        return f"{_MARK}{len(self._images) - 1}."

    def size(self, text: bytes) -> int:
        """Return the number of bytes of all `pieces` together."""
        return sum(
            len(part) if isinstance(part, bytes) else (part.size + 2) // 3 * 4
            for part in self._parts(text)
        )

    def pieces(self, text: bytes) -> Iterator[bytes]:
        """Yield the text with base64 in place of the marks."""
        for part in self._parts(text):
            if isinstance(part, bytes):
                yield part
            else:
                for start in range(0, part.size, PIECE):
                    yield base64.b64encode(part.read(start, PIECE))

    def _parts(self, text: bytes) -> Iterator[bytes | EncodedFile]:
        """Yield the text between the marks, and the images of the marks."""
        if not self._images:
            yield text  # there are no marks to search for
            return
        for number, part in enumerate(_MARKS.split(text)):
            yield self._images[int(part)] if number % 2 else part


@dataclass(frozen=True, slots=True)
class VectorStyle:
    """The key of a record that holds the vector of an image, and the form of its value.

    As base64 it is float32, little-endian, in standard base64 with padding. As numbers it is a
    JSON list whose numbers are exactly the float32 values.
    """

    output: NetworkOutput
    as_base64: bool

    def of_record(self, vector: Vector) -> dict[str, object]:
        """Return the vector of an image under its key in a record."""
        values: list[float] | str = vector.values.tolist()
        if self.as_base64:
            values = base64.b64encode(vector.values.astype("<f4").tobytes()).decode()
        return {"logits" if self.output is NetworkOutput.LOGITS else "embedding": values}

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> "VectorStyle":
        """Read the style from the options of a request, which were checked before."""
        if "output" not in options:
            return NO_VECTORS
        output = NetworkOutput(options["output"])
        return cls(output, options.get("vector_format") == "base64")


NO_VECTORS = VectorStyle(NetworkOutput.LABELS, as_base64=False)
"""The style of answers without vectors."""


Record = dict[str, Any]
"""A record as JSON has it, in the form of `models.api.schemas.Record`, without missing values."""


def record(
    answer: Answer,
    labels: LabelSet | None = None,
    scope: Scope | None = None,
    *,
    name: str | None = None,
    inline: InlineImages | None = None,
    vectors: VectorStyle = NO_VECTORS,
) -> Record:
    """Return an answer as a record.

    Its images are files of this `name`, and are added to `inline` where that is given; logits and
    embeddings are written as `vectors` says.
    """
    item, outcome = answer.item, answer.outcome

    def failed(error: ServiceError) -> Record:
        return {"status": "error", "error": problem(error, scope, item.index)}

    def shown(image: EncodedImage, version: int | None = None) -> Record:
        named = {} if name is None else {"name": file_name(name, image, version)}
        data = {} if inline is None else {"data": inline.add(image.file)}
        return {
            "media_type": image.format.media_type,
            "width": image.width,
            "height": image.height,
            "bytes": image.file.size,
            **({} if image.quality is None else {"quality": image.quality}),
            **named,
            **data,
        }

    def labelled(output: Labels | Vector | ServiceError | None) -> Record:
        if isinstance(output, ServiceError):
            return failed(output)
        if isinstance(output, Vector):
            return vectors.of_record(output)
        if output is None:
            return {}
        assert labels is not None
        return {"predictions": _predictions(output, labels)}

    found: Record = {"index": item.index}
    if item.id is not None:
        found["id"] = item.id
    if item.source is not None:
        found["source"] = item.source
    found["status"] = "ok"
    if isinstance(outcome, EncodedImage):
        found["image"] = shown(outcome)
    elif isinstance(outcome, Description):
        found["info"] = {k: v for k, v in asdict(outcome).items() if v is not None}
    elif isinstance(outcome, list):
        found["matches"] = [asdict(each) for each in outcome]
    elif isinstance(outcome, Processed):
        found |= labelled(outcome.labels)
        found["status"] = "partial" if outcome.errors else "ok"
        found["versions"] = [
            {
                "index": number,
                **({} if each.id is None else {"id": each.id}),
                "status": "ok",
                **(
                    failed(each.outcome)
                    if isinstance(each.outcome, ServiceError)
                    else {"image": shown(each.outcome, number)}
                ),
                "timing": each.stages.milliseconds(),
            }
            for number, each in enumerate(outcome.versions)
        ]
    else:
        found |= labelled(outcome)
    found["timing"] = answer.stages.milliseconds()
    return found


def file_name(name: str, image: EncodedImage, version: int | None = None) -> str:
    """Return the name of a file: the `name` of its image, its version, and the suffix of its
    format.
    """
    return (name if version is None else f"{name}-{version}") + image.format.extension


def _predictions(found: Labels, labels: LabelSet) -> list[Record]:
    """Return class ids and scores with the names of the classes, as values of predictions."""
    names, wnids = labels.labels, labels.wnids
    made: list[Record] = []
    for n, score in zip(found.class_ids, found.scores, strict=True):
        wnid = wnids[n]
        each = {"label": names[n]} if wnid is None else {"label": names[n], "wnid": wnid}
        made.append({**each, "class_id": n, "score": score})
    return made


def summary(records: Sequence[Record]) -> dict[str, int]:
    """Return how many images succeeded and how many failed."""
    succeeded = sum(each["status"] == "ok" for each in records)
    return {"total": len(records), "succeeded": succeeded, "failed": len(records) - succeeded}


def line(made: Record) -> bytes:
    """Return a record as one line of JSON."""
    return msgspec.json.encode(made) + b"\n"
