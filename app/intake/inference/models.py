"""The models that the Open Inference Protocol shows: each network, and its embedding.

Source: https://github.com/kserve/open-inference-protocol, specification/protocol/inference_rest.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from models.domain.errors import NotFound
from models.networks.registry import NETWORKS
from models.networks.served import ServedNetwork
from models.networks.spec import NetworkSpec

EMBEDDING_SUFFIX = "_embedding"
"""Ends the name of the model whose output is the embedding of a network."""

VERSION_DIGITS = 12
"""Hexadecimal digits of the weights' SHA-256 that are the version of a model."""

ANY_VERSION = "1"
"""The version by which a client names whatever weights are served."""

LONGEST_NAME = 60

IMAGE, PIXELS, INPUT = "IMAGE", "PIXELS", "INPUT"
SCORES, LOGITS, EMBEDDING, ERROR = "SCORES", "LOGITS", "EMBEDDING", "ERROR"


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A tensor of a model as its metadata describes it; -1 is a dimension of any size."""

    name: str
    datatype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class InferenceModel:
    """A network as a model of the protocol; `embeds` says which of its outputs it gives."""

    served: ServedNetwork
    embeds: bool = False

    @property
    def name(self) -> str:
        """Return the name in the URL."""
        return self.served.name + (EMBEDDING_SUFFIX if self.embeds else "")

    @property
    def spec(self) -> NetworkSpec:
        """Return the specification of the network."""
        return NETWORKS[self.served.name]

    @property
    def version(self) -> str:
        """Return the version, which changes with the weights; empty if there are none."""
        return "" if self.served.model is None else self.served.model.record.sha256[:VERSION_DIGITS]

    @property
    def width(self) -> int:
        """Return the number of values that an image has in an output."""
        if self.embeds:
            return self.spec.features
        return 0 if self.served.model is None else self.served.model.record.n_classes

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """Return the tensors of which a request has exactly one."""
        side = self.spec.preprocessing.crop
        return (
            TensorSpec(IMAGE, "BYTES", (-1,)),
            TensorSpec(PIXELS, "UINT8", (-1, -1, -1, 3)),
            TensorSpec(INPUT, "FP32", (-1, 3, side, side)),
        )

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """Return the tensors that an answer has if the request names none."""
        names = (EMBEDDING,) if self.embeds else (SCORES, LOGITS)
        values = [TensorSpec(name, "FP32", (-1, self.width)) for name in names]
        return (*values, TensorSpec(ERROR, "BYTES", (-1,)))


def models_of(networks: Sequence[ServedNetwork]) -> list[InferenceModel]:
    """Return all models of a server, those without weights too."""
    return [InferenceModel(each, embeds) for each in networks for embeds in (False, True)]


def model_named(
    networks: Sequence[ServedNetwork], name: str, version: str | None
) -> InferenceModel:
    """Return a model by the names of a URL; NotFound says which there are."""
    known = models_of(networks)
    for each in known:
        if each.name == name:
            if version in (None, ANY_VERSION, each.version):
                return each
            raise NotFound(
                f"the model {name} has no version {str(version)[:LONGEST_NAME]!r}; the version "
                f"of its weights is {each.version or 'none'}"
            )
    allowed = ", ".join(each.name for each in known) or "none"
    raise NotFound(f"there is no model {name[:LONGEST_NAME]!r} here; there are: {allowed}")
