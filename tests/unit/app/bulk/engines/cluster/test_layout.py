"""How many actors each node has."""

from typing import Any

import pytest

from app.bulk.engines.cluster.layout import places


def node(name: str, *, alive: bool = True, **resources: float) -> dict[str, Any]:
    found = {"NodeID": name, "Alive": alive, "NodeManagerAddress": name, "Resources": resources}
    return found


@pytest.mark.parametrize(
    ("cpus", "asked", "found"),
    [(0, 0, []), (1, 0, [1]), (6, 0, [6]), (12, 0, [6, 6]), (32, 0, [8] * 4), (7, 3, [3, 3])],
)
def test_the_cpus_of_a_node_are_divided_evenly(cpus: int, asked: int, found: list[int]) -> None:
    assert [each.cpus for each in places([node("a", CPU=cpus)], asked, gpus=True)] == found


def test_each_gpu_has_an_actor_and_nodes_without_one_have_none() -> None:
    nodes = [node("a", CPU=16.0, GPU=2.0), node("b", CPU=64.0)]
    found = places(nodes, 0, gpus=True)
    assert [(each.node, each.number, each.cpus, each.gpus) for each in found] == [
        ("a", 0, 8, 1),
        ("a", 1, 8, 1),
    ]
    assert {each.node for each in places(nodes, 0, gpus=False)} == {"a", "b"}


def test_lost_nodes_and_nodes_with_too_few_cpus_have_no_actor() -> None:
    nodes = [node("a", alive=False, CPU=4), node("b", CPU=1), node("c", CPU=2)]
    assert [each.node for each in places(nodes, 2, gpus=True)] == ["c"]
