"""The types of the settings about images of URLs, folders and buckets, which `Settings` lists."""

from typing import Annotated

from pydantic import BeforeValidator, Field
from pydantic_settings import NoDecode

from models.setting_types import Hosts, Networks, Ports, split

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
