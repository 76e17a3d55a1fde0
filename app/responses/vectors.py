"""Write logits and embeddings into a record, as JSON numbers or as base64."""

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from models.api.schemas import Record
from models.domain.job import Vector
from workers.operations import NetworkOutput


@dataclass(frozen=True, slots=True)
class VectorStyle:
    """The key of a record that holds the vector of an image, and the form of its value.

    As base64 it is float32, little-endian, in standard base64 with padding. As numbers it is a
    JSON list whose numbers are exactly the float32 values.
    """

    output: NetworkOutput
    as_base64: bool

    def add(self, record: Record, vector: Vector) -> None:
        """Put the vector of an image into its record."""
        values: list[float] | str = vector.values.tolist()
        if self.as_base64:
            values = base64.b64encode(vector.values.astype("<f4").tobytes()).decode()
        if self.output is NetworkOutput.LOGITS:
            record.logits = values
        else:
            record.embedding = values

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> "VectorStyle":
        """Read the style from the options of a request, which were checked before."""
        if "output" not in options:
            return NO_VECTORS
        output = NetworkOutput(options["output"])
        return cls(output, options.get("vector_format") == "base64")


NO_VECTORS = VectorStyle(NetworkOutput.LABELS, as_base64=False)
"""The style of answers without vectors."""
