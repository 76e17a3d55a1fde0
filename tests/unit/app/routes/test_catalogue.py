"""The list of networks is made once for the same networks: a thousand classes take milliseconds."""

from types import SimpleNamespace
from typing import Any

from app.routes.catalogue import models
from models.networks.served import ServedNetwork


async def test_the_body_is_made_again_only_when_the_networks_change() -> None:
    computing = SimpleNamespace(networks=[ServedNetwork("resnet18", problem="no weights")])
    service: Any = SimpleNamespace(computing=lambda: computing, listed=(None, b""))
    first = (await models(service)).body
    assert (await models(service)).body is first
    computing.networks = [ServedNetwork("resnet18", problem="another reason")]
    assert b"another reason" in (await models(service)).body
