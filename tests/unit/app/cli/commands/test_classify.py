"""The records of `darkroom classify --out`, with answers in place of a network."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from app.cli.commands import classify, local_service
from app.cli.commands.errors import WrongUsage
from app.cli.commands.results_file import ResultsFile
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


def written(
    folder: Path, monkeypatch: pytest.MonkeyPatch, loaded: Model, ends_after: int = 9
) -> int:
    """Classify FILES by the network `loaded`; the run is interrupted `ends_after` records."""

    async def answer_each(
        _settings: Settings,
        files: Sequence[str],
        _work: local_service.ItemWork,
        on_answer: Callable[..., None],
        **_options: Any,
    ) -> int:
        for number, name in enumerate(files):
            if number == ends_after:
                raise InterruptedError
            on_answer(SimpleNamespace(model=loaded), SimpleNamespace(outcome=None, name=name))
        return ExitCode.OK

    monkeypatch.setattr(local_service, "answer_each", answer_each)
    monkeypatch.setattr(local_service, "run", asyncio.run)
    results = ResultsFile(folder / "out.jsonl", FILES, {}, replaces=False)
    work: Any = None

    def made(_service: object, answer: Any) -> Record:
        return Record(index=0, source=answer.name, status="ok")

    try:
        return classify._written(Settings(), FILES, work, made, results)
    finally:
        results._file.close()


@pytest.mark.parametrize("later", [model("cd34"), model(labels=("cat", "cow"))])
def test_records_of_other_weights_or_labels_are_not_added(
    later: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InterruptedError):
        written(tmp_path, monkeypatch, model(), ends_after=1)
    with pytest.raises(WrongUsage, match="is of another network than is loaded now"):
        written(tmp_path, monkeypatch, later)
    assert written(tmp_path, monkeypatch, model()) == ExitCode.OK
    assert [*tmp_path.iterdir()] == [tmp_path / "out.jsonl"]
    assert (tmp_path / "out.jsonl").read_bytes().count(b"\n") == len(FILES)
