"""The engine on actors of this process: real ones but for Ray, over a service with few parts."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from app.bulk.engines.cluster import engine as engines
from app.bulk.engines.cluster import slot
from app.bulk.engines.cluster.connection import ActorLost, Cluster
from app.bulk.engines.cluster.engine import OnRay, RayEngine
from app.bulk.engines.cluster.layout import Place
from app.bulk.engines.cluster.messages import Answered, Started, decode_asked, encode
from app.bulk.engines.engine import Task, tasks_of
from app.bulk.engines.filtering import Filtering
from app.bulk.engines.work import Classification
from app.bulk.errors import EngineLost, WrongUsage
from app.bulk.sources.source import Source
from models.codec import ImageFormat
from models.domain.errors import InvalidParameter
from models.settings import Settings
from models.version import VERSION

Behave = Callable[[list[str]], Awaitable[str | None]]
"""Takes the names of a chunk; returns a problem, or raises ActorLost."""

IDENTITY = {"network": "resnet18", "precision": "fp32"}


async def good(_names: list[str]) -> None:
    await asyncio.sleep(0)


class Remote:
    """An actor; each image is its record, and with `filters` its filtered image too."""

    def __init__(self, cluster: "Nodes", place: Place) -> None:
        self._cluster, self._place, self._ended = cluster, place, asyncio.Event()
        self._behave = cluster.behave(place)

    async def begin(self, version: str, _orders: bytes) -> tuple[str | None, bytes]:
        assert version == VERSION
        return None, encode(self._cluster.started(self._place))

    async def answer(self, message: bytes) -> tuple[str | None, bytes]:
        tasks = [each.task() for each in decode_asked(message).tasks]
        problem = await self._behave([each.source.name for each in tasks])
        answers = [self._answered(each) for each in tasks]
        self._cluster.answered.append([each.index for each in tasks])
        return problem, encode(answers)

    def _answered(self, task: Task) -> Answered:
        data = b"" if task.source.load is None else task.source.load(100)
        line = b'{"index":%d,"status":"ok","data":"%s"}\n' % (task.index, data)
        return Answered(line, False, *(("png", data) if self._cluster.filters else ()))

    def kill(self) -> None:
        self._cluster.killed.append(self._place.node)


class Nodes:
    """A cluster; each actor that is started behaves as the next of `behaviours`, then well."""

    def __init__(self, *behaviours: Behave, names: Sequence[str] = "a") -> None:
        following = iter(behaviours)
        self.behave: Callable[[Place], Behave] = lambda _place: next(following, good)
        self.started: Callable[[Place], Started] = lambda _place: Started(IDENTITY, {"torch": "2"})
        self.alive = {name: True for name in names}
        self.filters = False
        self.answered: list[list[int]] = []
        self.killed: list[str] = []
        self.left = False
        self.silent = 0  # how many questions and orders are not answered
        self.asked = 0

    def _fail(self) -> None:
        self.asked += 1
        if self.silent > 0:
            self.silent -= 1
            raise ActorLost("the head node does not answer")

    def nodes(self) -> list[Mapping[str, Any]]:
        self._fail()
        return [
            {"NodeID": name, "Alive": alive, "NodeManagerAddress": name, "Resources": {"CPU": 1.0}}
            for name, alive in self.alive.items()
        ]

    def actor(self, place: Place) -> Remote:
        self._fail()
        return Remote(self, place)

    def close(self) -> None:
        self.left = True


def answers(nodes: Nodes, tasks: list[Task], work: Any = None, **how: Any) -> list[bytes]:
    """Return the lines of all tasks."""

    async def main() -> list[bytes]:
        chosen = work or Classification({}, "resnet18")
        settings = Settings(gpus="0")
        engine = RayEngine(cast(Cluster, nodes), settings, chosen, OnRay("auto", **how))
        try:
            await engine.begin()
            assert engine.identity == IDENTITY
            return [e.line async for found in engine.answers(iter(tasks)) for e in found]
        finally:
            await engine.aclose()

    lines = asyncio.run(main())
    assert nodes.left
    return lines


def files(folder: Path, count: int) -> list[Task]:
    for number in range(count):
        (folder / f"{number}.jpg").write_bytes(b"image %d" % number)
    return [*tasks_of(Source(str(folder / f"{n}.jpg"), f"{n}.jpg") for n in range(count))]


def expected(count: int) -> list[bytes]:
    return [b'{"index":%d,"status":"ok","data":"image %d"}\n' % (n, n) for n in range(count)]


async def lost(_names: list[str]) -> str | None:
    raise ActorLost("the process has died")


async def slow(_names: list[str]) -> str | None:
    await asyncio.sleep(0.2)
    return None


def test_records_come_in_order_with_the_contents_that_travelled(tmp_path: Path) -> None:
    nodes = Nodes(slow, good, names="ab")
    assert answers(nodes, files(tmp_path, 100)) == expected(100)
    firsts = [each[0] for each in nodes.answered]
    assert firsts != sorted(firsts)


def test_chunks_of_a_lost_actor_are_done_again(tmp_path: Path) -> None:
    nodes = Nodes(lost, lost)
    assert answers(nodes, files(tmp_path, 60)) == expected(60)


def test_a_chunk_that_ends_three_actors_ends_the_command(tmp_path: Path) -> None:
    async def bomb(names: list[str]) -> str | None:
        if any(name.endswith("/20.jpg") for name in names):
            raise ActorLost("out of memory")
        return None

    nodes = Nodes(*[bomb] * 20, names="ab")
    with pytest.raises(EngineLost, match=r"images 16 to 31, .*out of memory.*--exclude"):
        answers(nodes, files(tmp_path, 100))


def test_a_lost_node_is_given_up_and_others_do_its_chunks(tmp_path: Path) -> None:
    nodes = Nodes(names="ab")

    async def node_is_lost(_names: list[str]) -> str | None:
        nodes.alive["a"] = False
        raise ActorLost("the node has died")

    nodes.behave = lambda place: node_is_lost if place.node == "a" else slow
    assert answers(nodes, files(tmp_path, 60)) == expected(60)
    assert nodes.killed.count("a") == 1


def test_nodes_that_join_get_actors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "LOOK", 0.02)
    nodes = Nodes(names="a")
    helped: list[list[str]] = []

    def behave(place: Place) -> Behave:
        async def works(names: list[str]) -> str | None:
            nodes.alive["b"] = True
            await asyncio.sleep(0.1)
            helped.extend([names] if place.node == "b" else [])
            return None

        return works

    nodes.behave = behave
    assert answers(nodes, files(tmp_path, 200)) == expected(200)
    assert helped


def test_a_cluster_that_does_not_tell_its_nodes_is_no_traceback(tmp_path: Path) -> None:
    nodes = Nodes()
    nodes.silent = 1
    with pytest.raises(EngineLost, match="does not tell its nodes: the head node does not answer"):
        answers(nodes, files(tmp_path, 1))


@pytest.mark.parametrize("silent", [1, 2])
def test_a_head_node_that_is_silent_for_a_while_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, silent: int
) -> None:
    monkeypatch.setattr(engines, "LOOK", 0.02)
    monkeypatch.setattr(slot, "PAUSE", 0.02)
    nodes = Nodes(names="a")

    async def restarts(_names: list[str]) -> str | None:
        nodes.silent = silent
        await asyncio.sleep(0.1)
        return await lost(_names)

    nodes.behave = lambda _place: good if nodes.killed else restarts
    assert answers(nodes, files(tmp_path, 20)) == expected(20)
    assert nodes.silent == 0


def test_an_actor_that_cannot_be_asked_for_ends_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slot, "PAUSE", 0.01)
    nodes = Nodes()

    async def silent(_names: list[str]) -> str | None:
        nodes.silent = 100
        return await lost(_names)

    nodes.behave = lambda _place: silent
    with pytest.raises(EngineLost, match="the head node does not answer"):
        answers(nodes, files(tmp_path, 1))


def test_nodes_that_differ_are_named(tmp_path: Path) -> None:
    nodes = Nodes(slow, slow, names="ab")
    nodes.started = lambda place: Started(IDENTITY, {"torch": place.node})
    with pytest.raises(WrongUsage, match=r"node b has torch b \(not a\), unlike node a"):
        answers(nodes, files(tmp_path, 100))


def test_a_problem_of_a_node_ends_the_command(tmp_path: Path) -> None:
    async def problem(_names: list[str]) -> str | None:
        return "--ray-shared: /photos/0.jpg is not there"

    with pytest.raises(WrongUsage, match=r"node a: --ray-shared: /photos/0\.jpg is not there"):
        answers(Nodes(problem), files(tmp_path, 10), shared=True)


def test_a_cluster_without_enough_cpus_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WrongUsage, match="no node of the cluster has 4 CPUs"):
        answers(Nodes(), files(tmp_path, 1), cpus=4)


def test_names_alone_travel_to_nodes_that_share_the_files(tmp_path: Path) -> None:
    found = answers(Nodes(), files(tmp_path, 3), shared=True)
    assert found == [b'{"index":%d,"status":"ok","data":""}\n' % n for n in range(3)]


class Kept:
    """A destination in memory, in which the name `1.jpg` cannot be written."""

    def __init__(self) -> None:
        self.written: dict[str, bytes] = {}

    def write(self, task: Task, format_: ImageFormat, data: bytes) -> str | None:
        if task.source.place == "1.jpg":
            raise InvalidParameter("1.png exists already", [])
        name = task.source.place.replace(".jpg", format_.extension)
        self.written[name] = data
        return name

    def planned(self, task: Task) -> str | None:
        return task.source.place


def test_filtered_images_come_back_and_are_written_here(tmp_path: Path) -> None:
    nodes = Nodes()
    nodes.filters = True
    kept = Kept()
    found = answers(nodes, files(tmp_path, 3), Filtering(cast(Any, None), kept))
    assert kept.written == {"0.png": b"image 0", "2.png": b"image 2"}
    assert found[0].endswith(b',"file":"0.png"}\n')
    assert b'"status":"error"' in found[1]
    assert b"1.png exists already" in found[1]
    assert found[1].endswith(b'"file":"1.jpg"}\n')
