"""The types of settings: allowed values, and their conversion from text."""

import functools
import os
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from enum import StrEnum
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_settings import NoDecode

from models.did_you_mean import hint
from models.networks.folder import is_folder, spec_of
from models.networks.registry import NETWORKS
from models.networks.spec import EMBEDDING_SUFFIX

Network = IPv4Network | IPv6Network


class Optimize(StrEnum):
    """The time that may be spent on preparing a GPU's network for speed."""

    DEFAULT = "default"
    MAX = "max"


class Precision(StrEnum):
    """Arithmetic of the forward pass."""

    AUTO = "auto"
    FP32 = "fp32"
    BF16 = "bf16"
    FP16 = "fp16"


def cache_folder() -> Path:
    """Return the folder of downloads, by the XDG base directory specification.

    Compiled code is loaded from it, so ValueError for a user without a home folder: among the
    temporary files another user could write to it.
    """
    if base := os.environ.get("XDG_CACHE_HOME"):
        return Path(base) / "darkroom"
    try:
        return Path.home() / ".cache" / "darkroom"
    except RuntimeError:
        raise ValueError(
            f"user id {os.getuid()} has no home folder; set DARKROOM_CACHE_FOLDER or "
            "XDG_CACHE_HOME to a folder of this user"
        ) from None


_SIZE = re.compile(r"(-?[0-9]{1,20}(?:\.[0-9]{1,9})?) ?([A-Za-z]*)", re.ASCII)
_BYTES = {"B": 1} | {
    name: factor
    for power, prefix in enumerate("kMGT", 1)
    for name, factor in (
        (prefix, 1024**power),
        (f"{prefix}iB", 1024**power),
        (f"{prefix}B", 1000**power),
    )
}


def _in(units: Mapping[str, int], example: str) -> Callable[[object], object]:
    """Return what makes a whole number of text with one of the units, in any case of letters."""
    factors = {"": 1} | {unit.lower(): factor for unit, factor in units.items()}

    def number(value: object) -> object:
        if not isinstance(value, str):
            return value
        found = _SIZE.fullmatch(value.strip())
        factor = factors.get(found[2].lower()) if found else None
        if found is None or factor is None or (factor == 1 and "." in found[1]):
            raise ValueError(f"write a number, alone or with one of {', '.join(units)}: {example}")
        return int(Decimal(found[1]) * factor)

    return number


Size = Annotated[int, BeforeValidator(_in(_BYTES, "67108864, 64M, 64MiB or 67MB"))]
"""Bytes: `64M` and `64MiB` are 64 times 1024 squared, as in Docker and nginx; `64MB` is decimal."""

Pixels = Annotated[
    int, BeforeValidator(_in({"k": 1000, "M": 10**6, "MP": 10**6}, "50000000, 50M or 50MP"))
]
"""Pixels: `50M` and `50MP` are 50 million."""

Count = Annotated[str, BeforeValidator(str), Field(pattern="^(auto|[0-9]{1,3})$")]
"""A number, or `auto`."""

Several = Annotated[str, BeforeValidator(str), Field(pattern="^(auto|[1-9][0-9]?)$")]
"""One or more, or `auto`."""

RateLimit = Annotated[
    str,
    BeforeValidator(str),
    Field(pattern=r"^[1-9][0-9]{0,8}(\.[0-9]{1,3})?(/[1-9][0-9]{0,8})?$"),
]
"""Images a second, at least 1, and how many at once: `10`, `2.5` or `10/40`."""

HIGHEST_PORT = 65535

Port = Annotated[int, Field(ge=0, le=HIGHEST_PORT)]


def split(value: object) -> object:
    """Return a list from text with commas; return anything else unchanged."""
    return (
        [part.strip() for part in value.split(",") if part.strip()]
        if isinstance(value, str)
        else value
    )


Host = Annotated[
    str, AfterValidator(str.lower), Field(pattern=r"^(\*\.)?[A-Za-z0-9_:-]+(\.[A-Za-z0-9_-]+)*$")
]
"""A host name or an address; `*.` before a name stands for every name below it."""

Hosts = Annotated[tuple[Host, ...], NoDecode, BeforeValidator(split)]
"""Hosts between commas."""

Texts = Annotated[tuple[str, ...], NoDecode, BeforeValidator(split)]
"""Texts between commas."""

_PORTS = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?", re.ASCII)


@functools.lru_cache(16)
def port_ranges(text: str) -> tuple[range, ...]:
    """Return the ranges of a list of ports, `80,443,8000-8999`; raise ValueError."""
    return tuple(_ports(part.strip()) for part in text.split(","))


def _ports(part: str) -> range:
    found = _PORTS.fullmatch(part)
    first = int(found[1]) if found else 0
    last = int(found[2] or first) if found else 0
    if not 1 <= first <= last <= HIGHEST_PORT:
        raise ValueError(
            f"{part!r} is no port or range of ports from 1 to {HIGHEST_PORT}: 80,8000-8999"
        )
    return range(first, last + 1)


Ports = Annotated[
    str, BeforeValidator(str), AfterValidator(lambda text: port_ranges(text) and text)
]
"""Ports and ranges between commas."""

Networks = Annotated[tuple[Network, ...], NoDecode, BeforeValidator(split)]
"""IP addresses and networks between commas."""


def checked_models(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return names and folders of networks, folders as absolute paths.

    ValueError is raised where a network is unknown or repeated, where it has the name of another
    network's embedding, or where a folder cannot be served.
    """
    names = tuple(
        str(Path(os.path.abspath(os.path.expanduser(name)))) if is_folder(name) else name
        for name in names
    )
    unknown = [name for name in names if not is_folder(name) and name not in NETWORKS]
    served = [] if unknown else [spec_of(name).name for name in names]
    models = [*served, *(name + EMBEDDING_SUFFIX for name in served)]  # of `/v2`
    twice = [name for name in models if models.count(name) > 1]
    if unknown or twice or not names:
        problem = "each network once, at least one; "
        if twice:
            both = f"two networks, or a network and an embedding, are named {twice[0]}"
            problem = f"{both}; rename a folder, or name {problem}"
        if unknown:
            problem = f"there is no network {unknown[0]!r}; {hint(unknown[0], NETWORKS)}"
            if Path(unknown[0]).is_dir():
                problem += f"the folder of this name is written ./{unknown[0]}; "
        raise ValueError(
            f"{problem}there are {', '.join(NETWORKS)}, and folders, whose paths have a slash"
        )
    return names


ModelNames = Annotated[
    tuple[str, ...], NoDecode, BeforeValidator(split), AfterValidator(checked_models)
]
"""Names and folders of networks between commas; the first network is used by default."""

Digests = Annotated[str, Field(pattern=r"^([\w.-]+=)?[0-9a-f]{64}(,[\w.-]+=[0-9a-f]{64})*$")]
"""A SHA-256 digest in hexadecimal digits, or one for each network: `network=digest,…`."""

StoragePrefix = Annotated[
    str, Field(pattern=r"^(file:///[^/]|(s3|gs|az)://[a-z0-9])", max_length=4096)
]
"""The address of a folder: `file:///data/photos/` or `s3://bucket/photos/`."""

StoragePrefixes = Annotated[tuple[StoragePrefix, ...], NoDecode, BeforeValidator(split)]
"""Addresses of folders between commas."""
