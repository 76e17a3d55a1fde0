"""All networks by name, in the order in which they are listed.

The files of related networks look alike on purpose: each is complete, so that it can be read,
pinned and tested alone.
"""

from models.networks.resnet18 import RESNET18
from models.networks.resnet34 import RESNET34
from models.networks.resnet50 import RESNET50
from models.networks.spec import NetworkSpec, PublishedWeights

NETWORKS: dict[str, NetworkSpec] = {spec.name: spec for spec in (RESNET18, RESNET34, RESNET50)}

DEFAULT = RESNET18.name
"""The network that a server has when its settings name none."""


def qualified_name(published: PublishedWeights) -> str:
    """Return the name of weights among the weights of all networks.

    It is `network/name`, and `name` alone for weights of the default network.
    """
    same = published.network == DEFAULT
    return published.name if same else f"{published.network}/{published.name}"


CATALOGUE: dict[str, PublishedWeights] = {
    qualified_name(each): each for spec in NETWORKS.values() for each in spec.weights
}
"""All published weights by their qualified names."""
