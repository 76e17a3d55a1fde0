"""The records of a bulk command are those of the server, without timings."""

from app.bulk.engines.work import labels_line
from app.bulk.report import json_line
from app.intake.item import Item
from app.intake.spool import Blob
from app.pipeline.results.outcomes import Answer
from app.pipeline.results.timings import Timings
from app.responses.records import record
from models.domain.job import Labels
from models.labels import LabelSet

LABELS = LabelSet("own", ("cat", "dög", "a\tb"), ("n1", None, "n3"))


def test_the_quick_line_equals_the_record() -> None:
    found = Labels((1, 0, 2), (0.8229, 1e-07, 1.0))
    for source in ("a/b.jpg", "caf\udce9.jpg", None):
        answer = Answer(Item(7, Blob.of(b""), source), found, Timings())
        made = record(answer, LABELS).model_copy(update={"timing": None})
        assert labels_line(answer, found, LABELS) == json_line(made)
