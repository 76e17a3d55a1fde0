"""The weights that the settings ask for, for each network that is served.

This module reads no file and downloads nothing; `workers.engines.model` opens the result.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from models.did_you_mean import hint
from models.networks.folder import SUFFIXES, WEIGHTS, spec_of
from models.networks.registry import NETWORKS
from models.networks.spec import Bundled, NetworkSpec, PublishedWeights
from models.settings import PREFIX, Settings


@dataclass(frozen=True, slots=True)
class LocalFile:
    """A weights file of the operator's own; `sha256` is the digest that it must have, if any.

    Without `labels_path` the labels are those of the network's folder.
    """

    path: Path
    labels_path: Path | None
    sha256: str | None


@dataclass(frozen=True, slots=True)
class Random:
    """Untrained weights, which are the same for the same seed. Answers must mark them."""

    seed: int


@dataclass(frozen=True, slots=True)
class Auto:
    """`preferred` if it is in the cache or can be downloaded, else `fallback` with a warning."""

    preferred: PublishedWeights
    fallback: Bundled


WeightsSource = Auto | Bundled | PublishedWeights | LocalFile | Random


def served_specs(settings: Settings) -> list[NetworkSpec]:
    """Return the specifications of the networks that the settings ask for, the default first."""
    return [spec_of(name) for name in settings.networks]


def resolve_all(settings: Settings) -> dict[str, WeightsSource]:
    """Return the source of the weights of every network that is served, by the network's name.

    ValueError names the fault of the settings and lists the choices.
    """
    return {spec.name: resolve(settings, spec) for spec in served_specs(settings)}


def resolve(settings: Settings, spec: NetworkSpec) -> WeightsSource:
    """Return the source of the weights of a network; ValueError lists the choices."""
    asked = _of(settings, "weights", spec)
    asked = "auto" if asked is None else asked
    own = spec.folder
    if own is not None and asked in {name for each in NETWORKS.values() for name in _named(each)}:
        # A value for all networks may name weights that only the built-in networks have.
        if own.weights is None:
            raise ValueError(
                f"{own.path} has no weights file, or several: save {WEIGHTS[0]} there, or set "
                f"{PREFIX}WEIGHTS={spec.name}=FILE"
            )
        asked = str(own.weights)
    labels = _of(settings, "weights_labels", spec)
    sha256 = _of(settings, "weights_sha256", spec)
    path = Path(os.path.expanduser(asked))
    named = _named(spec)
    if random := re.fullmatch(r"random(?::(\d{1,18}))?", asked):
        named[asked] = Random(int(random[1] or 0))
    if asked in named:
        if labels or sha256:
            raise ValueError(
                f"weights {asked!r} bring their own labels and digest: DARKROOM_WEIGHTS_LABELS and "
                "DARKROOM_WEIGHTS_SHA256 belong to a weights file, unset them"
            )
        return named[asked]
    if path.suffix.lower() not in SUFFIXES:
        raise ValueError(_unknown(asked, spec, named, len(settings.networks) > 1))
    if labels is None and (own is None or (own.labels is None and own.n_classes)):
        raise ValueError(
            f"the weights file {path} needs labels, which cannot be guessed: set "
            "DARKROOM_WEIGHTS_LABELS to a JSON list, or a text with one label a line"
            f"{' (or give label_names in config.json)' if own else ''}"
        )
    return LocalFile(path, None if labels is None else Path(os.path.expanduser(labels)), sha256)


def _named(spec: NetworkSpec) -> dict[str, WeightsSource]:
    """Return the weights of a network that have names of their own."""
    if spec.folder is not None:
        return {}
    best = spec.weights[0]
    named: dict[str, WeightsSource] = {"auto": best}
    if spec.bundled is not None:
        named = {"auto": Auto(best, spec.bundled), spec.bundled.name: spec.bundled}
    return named | {each.name: each for each in spec.weights}


def _unknown(
    asked: str, spec: NetworkSpec, named: Mapping[str, WeightsSource], several: bool
) -> str:
    known = ", ".join({"auto": None, **named})
    each = f"; for each network its own: {PREFIX}WEIGHTS={spec.name}=auto,…" if several else ""
    return (
        f"no weights {asked!r}{f' of {spec.name}' if several else ''}; "
        f"{hint(asked, [*named, 'random'])}there are "
        f"{known}, random, random:SEED and files named *{', *'.join(SUFFIXES)}{each}"
    )


def _of(settings: Settings, field: str, spec: NetworkSpec) -> str | None:
    """Return the part of a setting that is about a network, None where there is no part.

    The setting is a single value for every network, or `network=value` for some, between commas.
    """
    given = getattr(settings, field)
    served = [each.name for each in served_specs(settings)]
    names = "|".join(map(re.escape, {**NETWORKS, **dict.fromkeys(served)}))
    if given is None or not re.match(rf"({names})=", str(given)):
        return None if given is None else str(given)
    parts = dict(part.strip().partition("=")[::2] for part in str(given).split(","))
    if wrong := [name for name in parts if name not in served]:
        raise ValueError(
            f"{PREFIX}{field.upper()} has a value for {wrong[0]!r}, but the networks are "
            f"{', '.join(served)}: write network=value between commas, or add the "
            f"network to {PREFIX}NETWORKS"
        )
    return parts.get(spec.name)
