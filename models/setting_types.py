"""The types of settings: allowed values, and their conversion from text."""

import os
import re
import stat
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from decimal import Decimal
from enum import StrEnum
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_settings import NoDecode

from models.did_you_mean import hint
from models.networks.registry import NETWORKS
from models.ports import checked_ports

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

    A user id without a home folder, as containers have them, gets a folder of its own among the
    temporary files. Compiled code is loaded from it, so ValueError if another user can write to it.
    """
    if base := os.environ.get("XDG_CACHE_HOME"):
        return Path(base) / "darkroom"
    try:
        return Path.home() / ".cache" / "darkroom"
    except RuntimeError:
        return _private(f"{tempfile.gettempdir()}/darkroom-{os.getuid()}")


def _private(folder: str) -> Path:
    try:
        with suppress(FileExistsError):
            os.mkdir(folder, 0o700)
        status = os.lstat(folder)
        is_ours = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()
        reason = "" if is_ours and not status.st_mode & 0o022 else "another user can write to it"
    except OSError as error:
        reason = str(error.strerror)
    if reason:
        raise ValueError(
            f"user id {os.getuid()} has no home folder, and {folder} cannot be its cache folder: "
            f"{reason}; set DARKROOM_CACHE_FOLDER or XDG_CACHE_HOME to a folder of this user"
        )
    return Path(folder)


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


CacheControl = Annotated[
    str,
    Field(
        max_length=200,
        pattern=r"^([a-z-]+(=[0-9]+)?(, ?[a-z-]+(=[0-9]+)?)*)?$",
        description="Cache-Control of good answers with images, as `private, max-age=3600`; "
        "empty: none",
    ),
]
"""The value of a Cache-Control header, or an empty text."""

Tracing = Annotated[
    bool,
    Field(
        description="true: traces by OpenTelemetry, sent as the OTEL_… variables say; needs the "
        "extra otel",
    ),
]
"""Whether there are traces."""

ResultCache = Annotated[
    Size,
    Field(
        ge=0,
        description="bytes of results kept by content, in each process that serves HTTP; equal "
        "images in flight are computed once then; 0: neither",
    ),
]
"""Bytes of memory for recent results."""

Count = Annotated[str, BeforeValidator(str), Field(pattern="^(auto|[0-9]{1,3})$")]
"""A number, or `auto`."""

Several = Annotated[str, BeforeValidator(str), Field(pattern="^(auto|[1-9][0-9]?)$")]
"""One or more, or `auto`."""

GpuWorkers = Annotated[
    Several,
    Field(
        description="processes that feed one GPU, each with a network and buffers of its own; "
        "auto: 2 where a GPU has 8 cores or more, else 1",
    ),
]
"""The number of worker processes of each GPU, or `auto`."""

Decoders = Annotated[
    Count,
    Field(
        description="processes that decode all but baseline JPEGs, in each process that serves "
        "HTTP; auto: one a core, at least 2; 0: threads decode, which cannot be ended",
    ),
]
"""The number of decoder processes, or `auto`."""

CodecMemory = Annotated[
    Size,
    Field(
        ge=0,
        description="estimated bytes that large images take at a time, and as many the largest; "
        "more wait; 0: 96 MiB for each decoder process, at least 192 MiB",
    ),
]
"""Bytes for decoding and encoding large images, or 0."""

PixelsInFlight = Annotated[
    Pixels,
    Field(
        ge=0,
        description="decoded pixels in memory; more wait for their turn; 0: 200 million, or room "
        "for one largest image for each front end, whichever is more",
    ),
]
"""Decoded pixels in memory, or 0."""


RateLimit = Annotated[
    str,
    BeforeValidator(str),
    Field(pattern=r"^[1-9][0-9]{0,8}(\.[0-9]{1,3})?(/[1-9][0-9]{0,8})?$"),
]
"""Images a second, at least 1, and how many at once: `10`, `2.5` or `10/40`."""

ClientRate = Annotated[
    RateLimit | None,
    Field(
        description="images a second that one client may send, and how many at once: `10/40`, or "
        "`10` for a second's; empty: any; beyond it 429",
    ),
]
"""The rate of one client, or None."""

ApiKeysFile = Annotated[
    Path | None,
    Field(
        description="file with one API key a line, `name:key` or `name:sha256=HEX`, `!` before it "
        "disables it; then images are taken only with a key; read again on SIGHUP",
    ),
]
"""The file of the API keys, or None."""

Port = Annotated[int, Field(ge=0, le=65535)]

MetricsPort = Annotated[
    Port, Field(description="port for /metrics alone; 0: with all else on the main port")
]
"""The port of the metrics, or 0."""

LogLevel = Annotated[
    str, Field(pattern="^(debug|info|warning|error)$", description="debug, info, warning or error")
]
"""The least level of lines that are logged."""

_GRPC_PORT = "port of the Open Inference Protocol over gRPC, which needs the extra `grpc`; 0: none"

GrpcPort = Annotated[Port, Field(description=_GRPC_PORT)]
"""The port of gRPC, or 0."""

GrpcMessageBytes = Annotated[
    Size, Field(ge=1 << 16, description="bytes of one message over gRPC, and at most a body's")
]
"""The largest message over gRPC."""


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

Ports = Annotated[str, BeforeValidator(str), AfterValidator(checked_ports)]
"""Ports and ranges between commas."""


Networks = Annotated[tuple[Network, ...], NoDecode, BeforeValidator(split)]
"""IP addresses and networks between commas."""


def checked_models(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of networks that classify; ValueError where one is unknown or repeated."""
    unknown = [name for name in names if name not in NETWORKS]
    if unknown or not names or len(set(names)) < len(names):
        problem = "each network once, at least one; "
        if unknown:
            problem = f"there is no network {unknown[0]!r}; {hint(unknown[0], NETWORKS)}"
        raise ValueError(f"{problem}there are {', '.join(NETWORKS)}")
    return names


ModelNames = Annotated[
    tuple[str, ...], NoDecode, BeforeValidator(split), AfterValidator(checked_models)
]
"""Names of networks that classify, between commas; the first one is used by default."""

Digests = Annotated[str, Field(pattern=r"^([a-z0-9_]+=)?[0-9a-f]{64}(,[a-z0-9_]+=[0-9a-f]{64})*$")]
"""A SHA-256 digest in hexadecimal digits, or one for each network: `network=digest,…`."""


# The types of the settings about jobs, which `Settings` lists.

DataFolder = Annotated[
    Path | None,
    Field(
        description="folder of jobs: their state, manifests and results; several hosts may share "
        "it; none: there are no jobs",
    ),
]
"""The folder of jobs, or None."""

JobsDatabase = Annotated[
    str | None,
    Field(
        pattern=r"^(sqlite\+aiosqlite|postgresql\+psycopg)://",
        description="database of jobs, as postgresql+psycopg://user:password@host/name where "
        "several hosts share jobs and the data folder; none: SQLite in the data folder",
    ),
]
"""The URL of a database as SQLAlchemy writes it, or None."""

JobRetention = Annotated[
    float, Field(gt=0, description="seconds for which the results of a finished job are kept")
]
"""Seconds between the end of a job and the removal of its files."""

JobsPerClient = Annotated[
    int, Field(ge=1, description="jobs of one client that may be queued or running")
]
"""Jobs of one client that have not finished."""

JobItems = Annotated[int, Field(ge=1, description="images of one job")]
"""Items of one manifest."""

JobBytes = Annotated[Size, Field(ge=1, description="bytes of the body that makes a job")]
"""Bytes of a manifest or an archive."""

DataBytes = Annotated[
    Size,
    Field(ge=1, description="bytes of the data folder; no job is taken, and none goes on, beyond"),
]
"""Bytes of all manifests, archives and results."""


# The types of the settings about images of URLs, folders and buckets, which `Settings` lists.

AllowedNetworks = Annotated[
    Networks, Field(description="networks image URLs may point to although they are not public")
]
"""Networks that are fetched from beside the public ones."""

AllowedPorts = Annotated[
    Ports,
    Field(
        description="ports that images are fetched from: numbers and ranges, 1-65535: all",
    ),
]
"""Ports and ranges of them, between commas."""

AllowedHosts = Annotated[
    Hosts,
    Field(
        description="hosts that images are fetched from, with `*.example.org` for all names below "
        "example.org; none: every public one",
    ),
]
"""The only hosts that are fetched from, or none for all."""

NamesKept = Annotated[
    float,
    Field(
        ge=0,
        le=300,
        description="seconds for which the addresses of a host name are kept; each is checked at "
        "every connection all the same; 0: none",
    ),
]
"""Seconds for which a resolved name is used again."""

StoragePrefix = Annotated[
    str, Field(pattern=r"^(file:///[^/]|(s3|gs|az)://[a-z0-9])", max_length=4096)
]
"""The address of a folder: `file:///data/photos/` or `s3://bucket/photos/`."""

StoragePrefixes = Annotated[
    tuple[StoragePrefix, ...],
    NoDecode,
    BeforeValidator(split),
    Field(
        description="folders and buckets that images are read from by their address: "
        "`file:///data/photos/,s3://bucket/photos/` (also gs:// and az://); none: no storage",
    ),
]
"""Prefixes that may be read, between commas."""

StorageTargets = Annotated[
    tuple[StoragePrefix, ...],
    NoDecode,
    BeforeValidator(split),
    Field(description="folders and buckets that jobs may write to, in the same form; none: none"),
]
"""Prefixes that may be written to, between commas."""

WebhookSecrets = Annotated[
    tuple[str, ...],
    NoDecode,
    BeforeValidator(split),
    Field(
        repr=False,
        description="secrets that sign webhooks of jobs, each `whsec_` and base64 of 24 to 64 "
        "bytes; several between commas while receivers change theirs; none: no webhooks",
    ),
]
"""Secrets of Standard Webhooks, between commas."""
