"""A network as it is served: with the weights that were found for it, or the reason without."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from models.api.schemas import ModelRecord
from models.domain.errors import InvalidParameter
from models.labels import LabelSet
from models.networks.registry import DEFAULT

LONGEST_NAME = 60
"""Characters of an unknown name that a message repeats."""


@dataclass(frozen=True, slots=True)
class Model:
    """A classifier: the record of a network with its weights, and the names of its classes."""

    record: ModelRecord
    labels: LabelSet
    unnamed: ModelRecord = field(init=False)
    """The record without the name of the default network, made once: a copy takes 4 µs."""
    json: tuple[bytes, bytes] = field(init=False)
    """`unnamed` and `record` as JSON, written once."""
    headers: tuple[str, str] = field(init=False)
    """The header `X-Model` of answers with `unnamed`, and with `record`."""

    def __post_init__(self) -> None:
        named = self.record.network != DEFAULT
        unnamed = self.record if named else self.record.model_copy(update={"network": None})
        object.__setattr__(self, "unnamed", unnamed)
        both = (unnamed, self.record)
        texts = tuple(each.model_dump_json(exclude_none=True).encode() for each in both)
        object.__setattr__(self, "json", texts)
        object.__setattr__(self, "headers", tuple(map(_header, both)))

    def record_for(self, chosen: bool) -> ModelRecord:
        """Return the record that an answer shows.

        Answers of the default network to requests that have not `chosen` it do not name it: they
        are the same as before there were several.
        """
        return self.record if chosen else self.unnamed


def _header(record: ModelRecord) -> str:
    named = f"; network={record.network}" if record.network else ""
    return f"{record.name}; sha256={record.sha256}; labels={record.label_set}{named}"


@dataclass(frozen=True, slots=True)
class ServedNetwork:
    """A network of a server, by its name.

    `model` is None where there are no weights; `problem` then gives the reason and advice. `side`
    is the side of the network's input in pixels, and `features` the width of its embedding.
    """

    name: str
    model: Model | None = None
    problem: str | None = None
    side: int = 0
    features: int = 0

    @property
    def n_classes(self) -> int:
        """Return the number of classes, 0 also where there are no weights."""
        return 0 if self.model is None else self.model.record.n_classes

    @property
    def identity(self) -> object:
        """Return what must not change in a server's life: the weights and their labels."""
        weights = None if self.model is None else (self.model.record.sha256, self.model.labels)
        return self.name, weights, self.problem


def chosen(networks: Sequence[ServedNetwork], name: str | None) -> ServedNetwork:
    """Return the network called `name`, by default the first, or an empty network without any.

    InvalidParameter names the networks that there are.
    """
    for each in networks:
        if name in (None, each.name):
            return each
    if name is None:
        return ServedNetwork("")
    allowed = ", ".join(each.name for each in networks) or "none"
    text = f"there is no model {name[:LONGEST_NAME]!r} here; allowed: {allowed}"
    raise InvalidParameter.of("model", text, name[:LONGEST_NAME])
