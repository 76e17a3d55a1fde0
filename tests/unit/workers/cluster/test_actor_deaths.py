"""What Ray knows of an actor's death, and how it is asked."""

import asyncio
from importlib import import_module
from typing import Any

import pytest

from tests.ray_cluster import import_ray
from workers.cluster import actor_deaths
from workers.cluster.actor_deaths import ActorDeaths


@pytest.fixture(scope="module", autouse=True)
def ray() -> None:
    """Import Ray once, without starting it."""
    import_ray()


def cause(**parts: Any) -> Any:
    """Return the cause of a death as the head of a cluster tells it."""
    generated = import_module("ray.core.generated.common_pb2")  # it has no types
    return generated.ActorDeathCause(**parts)


PROCESS = {"error_message": f"The actor is dead because {actor_deaths.PROCESS_DIED}."}
NODE = {"error_message": "The actor died because its node has died."}


@pytest.mark.parametrize(
    ("why", "counts"),
    [
        ({"actor_died_error_context": PROCESS}, True),
        ({"actor_died_error_context": NODE}, False),
        ({"oom_context": {"error_message": "the node ran low on memory"}}, True),
        ({}, False),
    ],
)
def test_only_a_process_that_ended_by_itself_counts(
    why: dict[str, Any], counts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def told(actor_id: str) -> dict[str, Any]:
        asked.append(actor_id)
        dead = len(asked) > 2
        return {"State": "DEAD" if dead else "ALIVE", "DeathCause": cause(**why)}

    monkeypatch.setattr("ray._private.state.actors", told)
    monkeypatch.setattr(actor_deaths, "INTERVAL", 0.0)

    async def scenario() -> list[bool]:
        deaths = ActorDeaths()
        return await asyncio.gather(*(deaths.by_itself("ab") for _ in range(8)))

    assert asyncio.run(scenario()) == [counts] * 8
    assert asked == ["ab"] * 3  # once for all calls that were lost together


def test_an_actor_that_goes_on_living_has_not_died(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ray._private.state.actors", lambda _actor: {"State": "ALIVE"})
    monkeypatch.setattr(actor_deaths, "KNOWN_WITHIN", 0.05)
    assert not asyncio.run(ActorDeaths().by_itself("ab"))
    assert not asyncio.run(ActorDeaths().by_itself(None))


def test_a_head_that_cannot_be_reached_blames_no_image(monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(_actor: str) -> dict[str, Any]:
        raise ConnectionError("the head is gone")

    monkeypatch.setattr("ray._private.state.actors", lost)
    monkeypatch.setattr(actor_deaths, "KNOWN_WITHIN", 0.05)
    assert not asyncio.run(ActorDeaths().by_itself("ab"))
