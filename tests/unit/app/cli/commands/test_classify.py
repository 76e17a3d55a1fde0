"""The records of `darkroom classify --out`, with records in place of a network."""

from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import Literal

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
    """Engine whose network is `loaded`; it ends after some records as an interrupted run does.

    The image called `failing` has an error as its record.
    """

    def __init__(self, loaded: Model, ends_after: int, failing: str = "") -> None:
        self.identity = identity_of(loaded)
        self._ends_after, self._failing = ends_after, failing

    async def answers(self, tasks: Iterator[Task]) -> AsyncGenerator[list[Finished], None]:
        for number, task in enumerate(tasks):
            if number == self._ends_after:
                raise InterruptedError
            failed = Path(task.source.name).name == self._failing
            status: Literal["ok", "error"] = "error" if failed else "ok"
            record = Record(index=task.index, source=task.source.name, status=status)
            yield [Finished(json_line(record), failed)]

    async def aclose(self) -> None:
        """There is nothing to end."""


def written(folder: Path, loaded: Model, ends_after: int = 9, failing: str = "") -> int:
    """Classify FILES by the network `loaded`; the run is interrupted `ends_after` records."""
    for name in FILES:
        (folder / name).touch()
    sources = Sources([str(folder / name) for name in FILES])

    async def start() -> Recorded:
        return Recorded(loaded, ends_after, failing)

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


def retried(folder: Path, loaded: Model, given: dict[str, object], **settings: object) -> int:
    """Try the images of FILES again that failed; the network is `loaded`."""
    sources, out = Sources([str(folder / name) for name in FILES]), folder / "out.jsonl"

    async def start() -> Recorded:
        return Recorded(loaded, ends_after=9)

    own = Settings.model_validate(settings)
    failed = classify._failed(out)
    return classify._written(own, start, sources, failed, out, force=False, given=given, retry=True)


def test_a_retry_mends_the_finished_file(tmp_path: Path) -> None:
    assert written(tmp_path, model(), failing=FILES[1]) == ExitCode.FAILED
    out = tmp_path / "out.jsonl"
    before = out.read_bytes()
    assert classify._failed(out) == 1
    assert retried(tmp_path, model(), {}, max_pixels=1000) == ExitCode.OK
    assert out.read_bytes() == before.replace(b'"error"', b'"ok"')
    assert {each.name for each in tmp_path.iterdir()} == {*FILES, "out.jsonl"}


def test_a_retry_by_another_network_or_with_other_options_is_refused(tmp_path: Path) -> None:
    assert written(tmp_path, model(), failing=FILES[1]) == ExitCode.FAILED
    before = (tmp_path / "out.jsonl").read_bytes()
    for later in (model("cd34"), model(labels=("cat", "cow"))):
        with pytest.raises(WrongUsage, match="another network made"):
            retried(tmp_path, later, {})
    with pytest.raises(WrongUsage, match=r"other options: top_k 3 \(was None\)"):
        retried(tmp_path, model(), {"top_k": 3})
    with pytest.raises(WrongUsage, match="other options: precision"):
        retried(tmp_path, model(), {}, precision="bf16")
    (tmp_path / "out.jsonl.origin.json").unlink()
    with pytest.raises(WrongUsage, match="is missing or cannot be read"):
        retried(tmp_path, model(), {})
    assert (tmp_path / "out.jsonl").read_bytes() == before
    assert {each.name for each in tmp_path.iterdir()} == {*FILES, "out.jsonl"}
