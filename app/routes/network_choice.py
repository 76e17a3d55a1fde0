"""Choose the network that answers a request, and its output, by the options of the request."""

from collections.abc import Sequence
from functools import lru_cache

from models.api.schemas import ClassifyOptions
from models.domain.errors import InvalidParameter, WeightsMissing
from models.networks.served import ServedNetwork, chosen
from workers.operations import Classify, FunctionToApply, NetworkOutput

_DEFAULTS = {
    name: ClassifyOptions.model_fields[name].default
    for name in ("top_k", "function_to_apply", "vector_format")
}
_OF_LABELS = ("top_k", "function_to_apply")
_OF_VECTORS = ("vector_format",)


def classification(
    options: ClassifyOptions, networks: Sequence[ServedNetwork]
) -> Classify | WeightsMissing:
    """Return the operation for a network, or the error where that network has no weights.

    InvalidParameter is raised for an unknown network, which names the served networks, and for
    options that have no meaning for the output.
    """
    served = chosen(networks, options.model)
    wanted = asked(options, served.name)
    if served.model is not None and not served.n_classes and options.output != "embedding":
        text = f"{served.name} has no classes; ask for output=embedding"
        raise InvalidParameter.of("output", text, options.output)
    return missing(served) if served.model is None else wanted


def missing(network: ServedNetwork) -> WeightsMissing:
    """Return the error for label requests while a network has no weights."""
    return WeightsMissing(network.problem or "no weights are loaded")


def asked(options: ClassifyOptions, network: str) -> Classify:
    """Return the operation for the network of this name.

    InvalidParameter is raised for an option without a meaning for the output, unless the option has
    its default value: forms send every option.
    """
    labels = options.output == "labels"
    for name in _OF_VECTORS if labels else _OF_LABELS:
        given = getattr(options, name)
        if given != _DEFAULTS[name]:
            fitting = "output=logits or output=embedding" if labels else "output=labels"
            text = f"has a meaning with {fitting} only; leave it out, or change output"
            raise InvalidParameter.of(name, text, given)
    return _classify(options.top_k, options.function_to_apply, network, options.output)


@lru_cache(256)
def _classify(top_k: int, function: str, network: str, output: str) -> Classify:
    """Return an operation, made once for equal options."""
    return Classify(top_k, FunctionToApply(function), network, NetworkOutput(output))
