"""The networks of a worker as MessagePack carries them in its `Welcome`."""

from typing import Any

import msgspec

from models.api.schemas import ModelRecord
from models.labels import LabelSet
from models.networks.served import Model, ServedNetwork


class EncodedNetwork(msgspec.Struct, frozen=True, array_like=True):
    """A network that a worker serves: its record and its labels, or the problem instead.

    `labels` are the name of the set, the names of the classes in order, and their WordNet ids.
    """

    name: str
    model: dict[str, Any] | None = None
    labels: tuple[str, list[str], list[str | None]] | None = None
    problem: str | None = None

    @property
    def identity(self) -> object:
        """Return what must not change in a server's life: the weights and their labels."""
        return self.name, self.labels, (self.model or {}).get("sha256"), self.problem


def encode_network(network: ServedNetwork) -> EncodedNetwork:
    """Return a served network as MessagePack can carry it."""
    model = network.model
    if model is None:
        return EncodedNetwork(network.name, problem=network.problem)
    labels = (model.labels.name, list(model.labels.labels), list(model.labels.wnids))
    return EncodedNetwork(network.name, model.record.model_dump(), labels, network.problem)


def decode_network(network: EncodedNetwork) -> ServedNetwork:
    """Reverse `encode_network`."""
    model = None
    if network.model is not None and network.labels is not None:
        name, labels, wnids = network.labels
        label_set = LabelSet(name, tuple(labels), tuple(wnids))
        model = Model(ModelRecord.model_validate(network.model), label_set)
    return ServedNetwork(network.name, model, network.problem)
