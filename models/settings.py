"""Every setting: a `DARKROOM_…` variable, a command-line flag and a row of `docs/settings.md`."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field, PrivateAttr
from pydantic_settings import BaseSettings, SettingsConfigDict

from models.setting_types import (
    Count,
    Digests,
    Hosts,
    ModelNames,
    Network,
    Networks,
    Optimize,
    Pixels,
    Port,
    Ports,
    Precision,
    RateLimit,
    Several,
    Size,
    StoragePrefixes,
    Texts,
    cache_folder,
)

__all__ = ["PREFIX", "Network", "Optimize", "Precision", "Settings", "in_sections"]

PREFIX = "DARKROOM_"
"""The beginning of the name of every setting that is a variable."""


class Settings(BaseSettings):
    """The settings of a server at its start. Sizes are in bytes, times are in seconds.

    An empty variable means that the setting is not set, as Compose makes it of `${NAME:-}`.
    """

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_ignore_empty=True,
        env_file_encoding="utf-8-sig",
        extra="forbid",
        frozen=True,
    )

    host: str = Field("127.0.0.1", description="address to listen on")
    port: int = Field(8000, ge=0, le=65535, description="port to listen on; 0 takes a free one")
    front_ends: Count = Field(
        "auto",
        description="processes that serve HTTP, beside those that compute; 0: one does all; auto: "
        "0 without GPUs, with them one a core that their workers leave over",
    )
    gpus: Count = Field(
        "auto", description="NVIDIA GPUs to compute on; auto: all there are; 0: none"
    )
    gpu_workers: Several = Field(
        "auto",
        description="processes that feed one GPU, each with a network and buffers of its own; "
        "auto: 2 where a GPU has 8 cores or more, else 1",
    )
    settings_file: Path | None = Field(
        None,
        description="file with lines DARKROOM_NAME=value, read at the start and on SIGHUP; the "
        "environment and flags win",
    )
    tls_certificate: Path | None = Field(
        None, description="PEM file with the certificate chain; with it the server speaks HTTPS"
    )
    tls_key: Path | None = Field(
        None, description="PEM file with the private key, if not in the certificate's file"
    )
    trusted_proxies: Networks = Field(
        (), description="proxies (addresses or networks) whose X-Forwarded-For and -Proto count"
    )
    cors_origins: Texts = Field(
        (), description="origins whose pages may call the server, as https://example.org; * for all"
    )
    allowed_hosts: Texts = Field(
        (),
        description="names that requests may have in their Host header, beside localhost; * for "
        "all; by default all, but none on a loopback address",
    )
    metrics_port: Port = Field(
        0, description="port for /metrics alone, on the same address; 0: with all else"
    )
    grpc_port: Port = Field(
        0,
        description="port of the Open Inference Protocol over gRPC, which needs the extra `grpc`; "
        "0: none",
    )
    log_level: str = Field(
        "info",
        pattern="^(debug|info|warning|error)$",
        description="debug, info, warning or error",
    )
    log_format: str = Field(
        "auto", pattern="^(auto|json|text)$", description="json, text, or auto: text on a terminal"
    )

    networks: ModelNames = Field(
        ("resnet18",), description="names or folders of networks; the first one is the default"
    )
    weights: str = Field(
        "auto",
        description="imagenet1k_v1, bundled (10 classes, no download), auto (the first if it can "
        "be had, else the second), random, or a .pth or .safetensors file",
    )
    weights_labels: str | None = Field(
        None, description="labels of a weights file: JSON list, or one label a line"
    )
    weights_sha256: Digests | None = Field(None, description="digest a weights file must have")
    cache_folder: Path = Field(
        default_factory=cache_folder, description="folder of weights and compiled kernels"
    )
    precision: Precision = Field(
        Precision.AUTO, description="auto, fp32, bf16 or fp16 for the forward pass"
    )
    optimize: Optimize = Field(
        Optimize.DEFAULT,
        description="max: compile the GPU's network at the start, for minutes; kept on disk",
    )
    threads: int = Field(0, ge=0, description="cores to compute with; 0 takes all of them")

    max_batch_size: int = Field(
        0, ge=0, le=512, description="images in one micro-batch; 0: 8 on a CPU, 64 on a GPU"
    )
    max_queue_delay: float = Field(
        0.0, ge=0, le=1, description="seconds a job may wait for others while the device is idle"
    )

    max_images_per_request: int = Field(
        64,
        ge=1,
        description="images in one request, or under way of a stream; in /process, labels and "
        "versions",
    )
    max_image_bytes: Size = Field(32 << 20, ge=1, description="bytes of one image file")
    max_body_bytes: Size = Field(256 << 20, ge=1, description="bytes of one request body")
    max_pixels: Pixels = Field(
        50_000_000, ge=1, le=178_956_970, description="pixels of one image (Pillow's limit at most)"
    )
    max_images_in_flight: int = Field(512, ge=1, description="images admitted at a time")
    max_bytes_in_flight: Size = Field(1 << 30, ge=1, description="upload bytes admitted at a time")
    max_images_per_client: int = Field(
        0,
        ge=0,
        description="images one client may have admitted; 0: at most 15 times what is free",
    )
    rate_limit: RateLimit | None = Field(
        None,
        description="images a second that one client may send, and how many at once: `10/40`, or "
        "`10` for a second's; empty: any; beyond it 429",
    )
    api_keys_file: Path | None = Field(
        None,
        description="file with one API key a line, `name:key` or `name:sha256=HEX`, `!` before it "
        "disables it; then images are taken only with a key; read again on SIGHUP",
    )
    decoders: Count = Field(
        "auto",
        description="processes that decode all but baseline JPEGs, in each process that serves "
        "HTTP; auto: one a core, at least 2; 0: threads decode, which cannot be ended",
    )
    presets: Path | None = Field(
        None,
        description="TOML file of presets: a table of filters and output options under each name, "
        "for `?preset=NAME`; read at the start; none: no presets",
    )
    cache_control: str = Field(
        "",
        max_length=200,
        pattern=r"^([a-z-]+(=[0-9]+)?(, ?[a-z-]+(=[0-9]+)?)*)?$",
        description="Cache-Control of good answers with images, as `private, max-age=3600`; "
        "empty: none",
    )
    result_cache: Size = Field(
        0,
        ge=0,
        description="bytes of results kept by content, in each process that serves HTTP; equal "
        "images in flight are computed once then; 0: neither",
    )
    tracing: bool = Field(
        False,
        description="true: traces by OpenTelemetry, sent as the OTEL_… variables say; needs the "
        "extra otel",
    )
    default_deadline: float = Field(30.0, gt=0, description="seconds a request may take")
    max_deadline: float = Field(120.0, gt=0, description="cap of the X-Deadline-Ms header")
    body_timeout: float = Field(30.0, gt=0, description="seconds to wait for the next body chunk")
    header_timeout: float = Field(
        10.0, gt=0, description="seconds from the first byte of a request to the end of its headers"
    )
    idle_timeout: float = Field(
        60.0, gt=0, description="seconds that a connection may be open between requests"
    )
    max_connections: int = Field(
        4096, ge=1, description="open connections; the oldest idle one makes room for a new one"
    )
    grace: float = Field(5.0, ge=0, description="seconds between not ready and closed on SIGTERM")
    drain_timeout: float = Field(
        30.0, gt=0, description="seconds accepted work may take after the grace time"
    )

    fetch_allowed_networks: Networks = Field(
        (), description="networks image URLs may point to although they are not public"
    )
    fetch_ports: Ports = Field(
        "80,443",
        description="ports that images are fetched from: numbers and ranges, 1-65535: all",
    )
    fetch_allowed_hosts: Hosts = Field(
        (),
        description="hosts that images are fetched from, with `*.example.org` for all names below "
        "example.org; none: every public one",
    )
    fetch_total_timeout: float = Field(20.0, gt=0, description="seconds one URL may take")
    fetch_concurrency: int = Field(
        64, ge=1, description="URLs fetched at once; one client has 3/4, one host 1/8"
    )
    storage_allow: StoragePrefixes = Field(
        (),
        description="folders and buckets that images are read from by their address: "
        "`file:///data/photos/,s3://bucket/photos/` (also gs:// and az://); none: no storage",
    )
    storage_allow_write: StoragePrefixes = Field(
        (),
        description="folders and buckets that jobs may write to, in the same form; none: none",
    )
    webhook_secret: Texts = Field(
        (),
        repr=False,
        description="secrets that sign webhooks of jobs, each `whsec_` and base64 of 24 to 64 "
        "bytes; several between commas while receivers change theirs; none: no webhooks",
    )

    data_folder: Path | None = Field(
        None,
        description="folder of jobs: their state, manifests and results; several hosts may share "
        "it; none: there are no jobs",
    )
    jobs_database: str | None = Field(
        None,
        pattern=r"^(sqlite|postgresql\+psycopg)://",
        description="database of jobs, as postgresql+psycopg://user:password@host/name where "
        "several hosts share jobs and the data folder; none: SQLite in the data folder",
    )
    job_retention: float = Field(
        86400.0, gt=0, description="seconds for which the results of a finished job are kept"
    )
    max_jobs_per_client: int = Field(
        16, ge=1, description="jobs of one client that may be queued or running"
    )
    max_data_bytes: Size = Field(
        64 << 30,
        ge=1,
        description="bytes of the data folder; no job is taken, and none goes on, beyond",
    )

    # Limits that no operator changes are fixed.

    max_batch_pixels: ClassVar[int] = 64_000_000
    """Pixels in one micro-batch; a larger image is alone in one. Staging slots of a GPU have room
    for them, and for 64 photos of 1 megapixel."""
    max_connections_per_client: ClassVar[int] = 1024
    """Open connections of one address, or IPv6 network of /64: a client needs one a request."""
    min_body_rate: ClassVar[int] = 1024
    """Bytes per second that a client must send of a body, or read of an answer, over 10 s: less
    than any network gives."""
    decode_memory: ClassVar[int] = 256 << 20
    """Estimated bytes to decode one image. A JPEG of `max_pixels` by default fits."""
    encode_memory: ClassVar[int] = 286 << 20
    """Estimated bytes to filter or encode one image; an AVIF of 24 megapixels fits."""
    grpc_max_message_bytes: ClassVar[int] = 8 << 20
    """Bytes of one message over gRPC: grpcio keeps eight of them in memory."""
    canary_interval: ClassVar[float] = 5.0
    """Seconds between canary inferences: a worker that fails is noticed within three of them."""
    max_job_items: ClassVar[int] = 10_000_000
    """Images of one job; `max_data_bytes` bounds their manifest and their results."""
    max_job_bytes: ClassVar[int] = 16 << 30
    """Bytes of the body that makes a job, and of what its archive unpacks to."""

    _given: dict[str, Any] = PrivateAttr(default_factory=dict)

    @property
    def given(self) -> dict[str, Any]:
        """Return the values that were given as command-line flags."""
        return self._given

    @classmethod
    def of(cls, given: dict[str, Any], file: str | Path | None) -> "Settings":
        """Return settings from flags, the environment and a settings file: the first one wins."""
        source: dict[str, Any] = {"_env_file": file or None}
        settings = cls(**given, **source)
        settings._given = given
        return settings


SECTIONS = {
    "host": "address and processes",
    "settings_file": "settings file, TLS, proxies, metrics and logs",
    "networks": "networks and cores",
    "max_batch_size": "batches",
    "max_images_per_request": "limits of requests",
    "max_images_per_client": "limits of each client",
    "decoders": "decoding, encoding and their memory",
    "cache_control": "caching and traces",
    "default_deadline": "deadlines",
    "body_timeout": "connections",
    "grace": "stopping",
    "fetch_allowed_networks": "images from URLs",
    "storage_allow": "images in folders and buckets",
    "webhook_secret": "webhooks",
    "data_folder": "jobs",
}
"""The first setting of each section, in the order of `Settings`, and the title of the section."""


def in_sections(names: Iterable[str], order: Iterable[str]) -> dict[str, list[str]]:
    """Return the given names by the titles of their sections, both in the order of `order`."""
    wanted, found, title = set(names), dict[str, list[str]](), ""
    for name in order:
        title = SECTIONS.get(name, title)
        if name in wanted:
            found.setdefault(title, []).append(name)
    return found
