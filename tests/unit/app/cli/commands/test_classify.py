"""The records of `darkroom classify --out`, with records in place of a network."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest

from app.bulk import engine
from app.bulk.errors import WrongUsage
from app.bulk.report import json_line, readable
from app.bulk.run import Run
from app.bulk.sources import Sources
from app.bulk.walk import Task
from app.bulk.work import Classification, Finished
from app.cli.commands import classify
from darkroom_client import ImageResult
from models.exit_codes import ExitCode
from models.settings import Settings

FILES = ["a.jpg", "b.jpg"]
WRITTEN = {*FILES, "out.jsonl", "out.jsonl.origin.json"}

Identity = dict[str, object]


def model(sha256: str = "ab12", labels: str = "cat, dog") -> Identity:
    return {"network": "resnet", "weights": sha256, "labels": labels}


class Recorded:
    """Engine whose network is `identity`; it ends after some records as an interrupted run does.

    The image called `failing` has an error as its record. `note` gets the names of images.
    """

    def __init__(
        self,
        identity: Identity,
        ends_after: int = 99,
        failing: str = "",
        note: Callable[[str], object] = str,
    ) -> None:
        self.identity = identity
        self._ends_after, self._failing, self._note = ends_after, failing, note

    def answers(self, tasks: Iterator[Task]) -> Iterator[list[Finished]]:
        """Yield a record of each task."""
        for number, task in enumerate(tasks):
            if number == self._ends_after:
                raise InterruptedError
            failed = Path(task.source.name).name == self._failing
            status: Literal["ok", "error"] = "error" if failed else "ok"
            record = ImageResult(
                index=task.number, source=readable(task.source.name), status=status
            )
            self._note(Path(task.source.name).stem)
            yield [Finished(json_line(record), failed)]

    def close(self) -> None:
        """There is nothing to end."""

    kill = close


def classified(
    recorded: Recorded,
    sources: Sources,
    out: Path,
    given: Mapping[str, object] = {},
    *,
    force: bool = False,
    retry: bool = False,
    **settings: Any,
) -> int:
    """Classify the sources by records in place of a network."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "start", lambda *_: recorded)
        run = Run(Settings.model_validate(settings), Classification(given), [], sources.count())
        return classify._written(run, sources, out, force, given, retry=retry)


def written(folder: Path, loaded: Identity, ends_after: int = 9, failing: str = "") -> int:
    """Classify FILES by the network `loaded`; the run is interrupted `ends_after` records."""
    for name in FILES:
        (folder / name).touch()
    sources = Sources([str(folder / name) for name in FILES])
    return classified(Recorded(loaded, ends_after, failing), sources, folder / "out.jsonl")


@pytest.mark.parametrize("later", [model("cd34"), model(labels="cat, cow")])
def test_records_of_other_weights_or_labels_are_not_added(later: Identity, tmp_path: Path) -> None:
    with pytest.raises(InterruptedError):
        written(tmp_path, model(), ends_after=1)
    with pytest.raises(WrongUsage, match=r"another network made .*partial than is loaded now"):
        written(tmp_path, later)
    assert written(tmp_path, model()) == ExitCode.OK
    assert {each.name for each in tmp_path.iterdir()} == WRITTEN
    assert (tmp_path / "out.jsonl").read_bytes().count(b"\n") == len(FILES)


def retried(folder: Path, loaded: Identity, given: dict[str, object], **settings: Any) -> int:
    """Try the images of FILES again that failed; the network is `loaded`."""
    sources, out = Sources([str(folder / name) for name in FILES]), folder / "out.jsonl"
    return classified(Recorded(loaded), sources, out, given, retry=True, **settings)


def test_a_retry_mends_the_finished_file(tmp_path: Path) -> None:
    assert written(tmp_path, model(), failing=FILES[1]) == ExitCode.FAILED
    out = tmp_path / "out.jsonl"
    before = out.read_bytes()
    assert retried(tmp_path, model(), {}, max_pixels=1000) == ExitCode.OK
    assert out.read_bytes() == before.replace(b'"error"', b'"ok"')
    assert {each.name for each in tmp_path.iterdir()} == WRITTEN


def test_a_retry_by_another_network_or_with_other_options_is_refused(tmp_path: Path) -> None:
    assert written(tmp_path, model(), failing=FILES[1]) == ExitCode.FAILED
    before = (tmp_path / "out.jsonl").read_bytes()
    for later in (model("cd34"), model(labels="cat, cow")):
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
    assert {each.name for each in tmp_path.iterdir()} == WRITTEN - {"out.jsonl.origin.json"}


class Grown:
    """Runs of one command over images whose names change; `computed` are those of all runs."""

    def __init__(self, folder: Path, out: str = "out.jsonl") -> None:
        self.folder, self.out = folder, folder / out
        self.computed: list[str] = []
        (folder / "in").mkdir()

    def run(self, names: str, *, ends_after: int = 99, top_k: int = 5, force: bool = False) -> int:
        """Classify images called like the letters of `names`; `x` fails."""
        for file in (self.folder / "in").iterdir():
            file.unlink()
        for name in names:
            (self.folder / "in" / f"{name}.jpg").touch()
        sources = Sources([str(self.folder / "in")])
        note = self.computed.append
        recorded = Recorded(model(), ends_after, "x.jpg", note)
        return classified(recorded, sources, self.out, {"top_k": top_k}, force=force)

    def names(self) -> str:
        """Return the names in the file, after a look at their positions."""
        records = [
            msgspec.json.decode(line, type=ImageResult)
            for line in self.out.read_bytes().splitlines()
        ]
        assert [each.index for each in records] == list(range(len(records)))
        return "".join(Path(each.source or "").stem for each in records)


def test_a_folder_that_has_grown_goes_on_with_what_is_new(tmp_path: Path) -> None:
    grown = Grown(tmp_path)
    assert grown.run("bdx") == ExitCode.FAILED
    assert grown.run("abcdxz") == ExitCode.FAILED
    assert (grown.names(), "".join(grown.computed)) == ("abcdxz", "bdxacz")
    before = grown.out.read_bytes()
    assert grown.run("abcdxz") == ExitCode.FAILED
    assert (grown.out.read_bytes(), len(grown.computed)) == (before, 6)
    assert not [*tmp_path.glob("*.partial")]


def test_an_interrupted_run_over_a_folder_that_grew_meanwhile_goes_on(tmp_path: Path) -> None:
    grown = Grown(tmp_path)
    with pytest.raises(InterruptedError):
        grown.run("bdf", ends_after=2)
    with pytest.raises(InterruptedError):
        grown.run("abcdef", ends_after=1)
    assert grown.run("abcdefg") == ExitCode.OK
    assert (grown.names(), "".join(grown.computed)) == ("abcdefg", "bdacefg")
    with pytest.raises(InterruptedError):
        grown.run("0abcdefgh", ends_after=1)
    assert grown.run("0abcdefgh") == ExitCode.OK
    assert (grown.names(), "".join(grown.computed)) == ("0abcdefgh", "bdacefg0h")


def test_a_table_over_a_folder_that_grew_goes_on_also_when_it_is_finished(tmp_path: Path) -> None:
    grown = Grown(tmp_path, "out.csv")
    with pytest.raises(InterruptedError):
        grown.run("bd", ends_after=1)
    assert grown.run("abcd") == ExitCode.OK
    with pytest.raises(InterruptedError):
        grown.run("0abcdx", ends_after=1)
    assert grown.run("0abcdx") == ExitCode.FAILED
    rows = [line.split(",")[:2] for line in grown.out.read_text().splitlines()[1:]]
    assert [(i, Path(name).stem) for i, name in rows] == [*zip("012345", "0abcdx", strict=True)]
    assert "".join(grown.computed) == "bacd0x"
    assert {each.name for each in tmp_path.iterdir()} == {"in", "out.csv", "out.csv.origin.json"}


def test_removed_images_and_other_options_are_refused_and_force_begins_anew(tmp_path: Path) -> None:
    grown = Grown(tmp_path)
    assert grown.run("abc") == ExitCode.OK
    before = grown.out.read_bytes()
    with pytest.raises(WrongUsage, match=r"records of 1 images .*/b\.jpg\); .*--force"):
        grown.run("acd")
    with pytest.raises(WrongUsage, match=r"other options: top_k 1 \(was 5\); .*--force"):
        grown.run("abcd", top_k=1)
    assert grown.out.read_bytes() == before
    assert grown.run("acd", force=True) == ExitCode.OK
    assert grown.names() == "acd"
