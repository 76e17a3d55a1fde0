"""What is done with every image of a command, in a form that another process understands."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from app.bulk.engines.engine import Finished, Task
from app.bulk.report import json_line, readable
from app.http.problems import read
from app.intake.wanted import Wanted
from app.pipeline.results.outcomes import Answer
from app.responses.records import VectorStyle, record
from app.routes.network_choice import asked
from app.service import Service
from models.api.schemas import ClassifyOptions
from models.domain.errors import ServiceError
from models.domain.job import Labels
from models.labels import LabelSet
from models.networks.served import Model

_ENCODER = msgspec.json.Encoder()


@dataclass(frozen=True, slots=True)
class Classification:
    """Labels, logits or embeddings of every image.

    `options` are those of `POST /classify`, as they were given; `network` is the default network.
    With `timing` a record has the milliseconds of its stages, which differ from run to run.
    """

    options: Mapping[str, Any]
    network: str
    timing: bool = False
    needs_weights: bool = field(default=True, init=False)

    def wanted(self) -> Wanted:
        """Return what is wanted of every image; raises InvalidParameter."""
        return asked(read(ClassifyOptions, dict(self.options)), self.network)

    async def finished(self, service: Service, answer: Answer, _task: Task) -> Finished:
        """Return the record of an answer."""
        return Finished(self._line(service, answer), isinstance(answer.outcome, ServiceError))

    def identity(self, service: Service) -> Mapping[str, object] | None:
        """Return the properties of the loaded network that records depend on."""
        return None if service.model is None else identity_of(service.model)

    def _line(self, service: Service, answer: Answer) -> bytes:
        labels = service.model.labels if service.model else None
        if isinstance(answer.outcome, Labels) and labels is not None and not self.timing:
            return labels_line(answer, answer.outcome, labels)
        made = record(answer, labels, vectors=VectorStyle.of(self.options))
        return json_line(made if self.timing else made.model_copy(update={"timing": None}))


def labels_line(answer: Answer, found: Labels, labels: LabelSet) -> bytes:
    """Return the record of an image with labels as `json_line` does, in a tenth of the time.

    A bulk command makes thousands of these a second, and a pydantic model of each takes 60 µs.
    """
    predictions = [
        {
            "label": labels.labels[number],
            **({} if labels.wnids[number] is None else {"wnid": labels.wnids[number]}),
            "class_id": number,
            "score": score,
        }
        for number, score in zip(found.class_ids, found.scores, strict=True)
    ]
    made: dict[str, object] = {"index": answer.item.index}
    if answer.item.source is not None:
        made["source"] = readable(answer.item.source)
    return _ENCODER.encode(made | {"status": "ok", "predictions": predictions}) + b"\n"


def identity_of(model: Model) -> dict[str, object]:
    """Return the properties of a loaded network that its records depend on.

    The options do not say them all: `--weights auto` takes the weights that can be had, and the
    content of a file of labels may change. A warning is among them if the labels are not those one
    would expect.
    """
    names = json.dumps([model.labels.labels, model.labels.wnids]).encode()
    return {
        "network": model.record.name,
        "weights": model.record.sha256,
        "labels": hashlib.sha256(names).hexdigest(),
        "preprocessing": model.record.preprocessing,
        "precision": model.record.precision,
        **({"warning": model.record.warning} if model.record.warning else {}),
    }
