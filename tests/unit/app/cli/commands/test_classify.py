"""The records of `darkroom classify --out`, with records in place of a network."""

from collections.abc import AsyncGenerator, Iterator
from pathlib import Path

import pytest

from app.bulk.engines.engine import Finished, Task
from app.bulk.engines.work import identity_of
from app.bulk.errors import WrongUsage
from app.bulk.report import json_line
from app.bulk.sources.expansion import Sources
from app.cli.commands import classify
from models.api.schemas import ModelRecord, Record
from models.exit_codes import ExitCode
from models.labels import LabelSet
from models.networks.served import Model
from models.settings import Settings

FILES = ["a.jpg", "b.jpg"]


def model(sha256: str = "ab12", labels: tuple[str, ...] = ("cat", "dog")) -> Model:
    record = ModelRecord(
        name="resnet",
        sha256=sha256,
        label_set="own",
        n_classes=len(labels),
        random=False,
        preprocessing=1,
        precision="fp32",
        device="cpu",
    )
    return Model(record, LabelSet("own", labels, (None,) * len(labels)))


class Recorded:
    """Engine whose network is `loaded`; it ends after some records as an interrupted run does."""

    def __init__(self, loaded: Model, ends_after: int) -> None:
        self.identity = identity_of(loaded)
        self._ends_after = ends_after

    async def answers(self, tasks: Iterator[Task]) -> AsyncGenerator[list[Finished], None]:
        for number, task in enumerate(tasks):
            if number == self._ends_after:
                raise InterruptedError
            record = Record(index=task.index, source=task.source.name, status="ok")
            yield [Finished(json_line(record), failed=False)]

    async def aclose(self) -> None:
        """There is nothing to end."""


def written(folder: Path, loaded: Model, ends_after: int = 9) -> int:
    """Classify FILES by the network `loaded`; the run is interrupted `ends_after` records."""
    for name in FILES:
        (folder / name).touch()
    sources = Sources([str(folder / name) for name in FILES])

    async def start() -> Recorded:
        return Recorded(loaded, ends_after)

    return classify._written(
        Settings(), start, sources, len(FILES), folder / "out.jsonl", force=False, given={}
    )


@pytest.mark.parametrize("later", [model("cd34"), model(labels=("cat", "cow"))])
def test_records_of_other_weights_or_labels_are_not_added(later: Model, tmp_path: Path) -> None:
    with pytest.raises(InterruptedError):
        written(tmp_path, model(), ends_after=1)
    with pytest.raises(WrongUsage, match="is of another network than is loaded now"):
        written(tmp_path, later)
    assert written(tmp_path, model()) == ExitCode.OK
    assert {each.name for each in tmp_path.iterdir()} == {*FILES, "out.jsonl"}
    assert (tmp_path / "out.jsonl").read_bytes().count(b"\n") == len(FILES)


def test_a_retry_mends_the_finished_file(tmp_path: Path) -> None:
    assert written(tmp_path, model()) == ExitCode.OK
    out = tmp_path / "out.jsonl"
    good = out.read_bytes()
    first, second = good.splitlines(keepends=True)
    out.write_bytes(first + second.replace(b'"ok"', b'"error"'))
    assert classify._failed(out) == 1
    sources = Sources([str(tmp_path / name) for name in FILES])

    async def start() -> Recorded:
        return Recorded(model(), ends_after=9)

    code = classify._written(Settings(), start, sources, 1, out, force=False, given={}, retry=True)
    assert code == ExitCode.OK
    assert out.read_bytes() == good
