"""Every setting: a `DARKROOM_…` variable, a command-line flag and a row of `docs/settings.md`."""

from pathlib import Path
from typing import Any

from pydantic import Field, PrivateAttr
from pydantic_settings import BaseSettings, SettingsConfigDict

from models.setting_types import (
    AllowedHosts,
    AllowedNetworks,
    AllowedPorts,
    ApiKeysFile,
    CacheControl,
    ClientRate,
    CodecMemory,
    Count,
    DataBytes,
    DataFolder,
    Decoders,
    Digests,
    GpuWorkers,
    GrpcMessageBytes,
    GrpcPort,
    JobBytes,
    JobItems,
    JobRetention,
    JobsDatabase,
    JobsPerClient,
    LogLevel,
    MetricsPort,
    ModelNames,
    NamesKept,
    Network,
    Networks,
    Optimize,
    Pixels,
    PixelsInFlight,
    Precision,
    ResultCache,
    Size,
    StoragePrefixes,
    StorageTargets,
    Texts,
    Tracing,
    WebhookSecrets,
    cache_folder,
)
from models.settings_file import PREFIX

__all__ = ["PREFIX", "Network", "Optimize", "Precision", "Settings"]


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
    gpu_workers: GpuWorkers = "auto"
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
    metrics_port: MetricsPort = 0
    metrics_host: str = Field("127.0.0.1", description="address of the port for metrics")
    grpc_port: GrpcPort = 0
    log_level: LogLevel = "info"
    log_format: str = Field(
        "auto", pattern="^(auto|json|text)$", description="json, text, or auto: text on a terminal"
    )

    networks: ModelNames = Field(
        ("resnet18",), description="networks to classify with; the first one is the default"
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
    max_batch_pixels: Pixels = Field(
        64_000_000, ge=1, description="pixels in one micro-batch; a larger image is alone in one"
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
    grpc_max_message_bytes: GrpcMessageBytes = 8 << 20
    max_pixels: Pixels = Field(
        50_000_000, ge=1, le=178_956_970, description="pixels of one image (Pillow's limit at most)"
    )
    max_images_in_flight: int = Field(512, ge=1, description="images admitted at a time")
    max_bytes_in_flight: Size = Field(1 << 30, ge=1, description="upload bytes admitted at a time")
    max_arriving_bytes: Size = Field(512 << 20, ge=1, description="bytes of bodies still arriving")
    max_images_per_client: int = Field(
        0,
        ge=0,
        description="images one client may have admitted; 0: all while no other wants any, "
        "else at most 15 times what is free",
    )
    max_bytes_per_client: Size = Field(
        0, ge=0, description="bytes that may be arriving from one client; 0: as for images"
    )
    rate_limit: ClientRate = None
    api_keys_file: ApiKeysFile = None
    max_pixels_in_flight: PixelsInFlight = 0
    decoders: Decoders = "auto"
    codec_memory: CodecMemory = 0
    decode_memory: Size = Field(256 << 20, ge=1, description="estimated bytes to decode one image")
    encode_memory: Size = Field(
        286 << 20, ge=1, description="bytes to filter, or encode, one image"
    )
    spool_bytes: Size = Field(
        4 << 20, ge=0, description="an upload or download larger than this waits on disk"
    )
    cache_control: CacheControl = ""
    result_cache: ResultCache = 0
    tracing: Tracing = False
    default_deadline: float = Field(30.0, gt=0, description="seconds a request may take")
    max_deadline: float = Field(120.0, gt=0, description="cap of the X-Deadline-Ms header")
    body_timeout: float = Field(30.0, gt=0, description="seconds to wait for the next body chunk")
    min_body_rate: Size = Field(
        1024,
        ge=0,
        description="bytes per second that a client must send of a body, or read of an answer, "
        "over 10 s; 0: any",
    )
    header_timeout: float = Field(
        10.0, gt=0, description="seconds from the first byte of a request to the end of its headers"
    )
    idle_timeout: float = Field(
        60.0, gt=0, description="seconds that a connection may be open between requests"
    )
    max_connections: int = Field(
        4096, ge=1, description="open connections; the oldest idle one makes room for a new one"
    )
    max_connections_per_client: int = Field(
        1024, ge=1, description="open connections of one address, or IPv6 network of /64"
    )
    grace: float = Field(5.0, ge=0, description="seconds between not ready and closed on SIGTERM")
    drain_timeout: float = Field(
        30.0, gt=0, description="seconds accepted work may take after the grace time"
    )
    canary_interval: float = Field(
        5.0, gt=0, description="seconds between canary inferences; ready means one passed lately"
    )

    fetch_allowed_networks: AllowedNetworks = ()
    fetch_ports: AllowedPorts = "80,443"
    fetch_allowed_hosts: AllowedHosts = ()
    fetch_connect_timeout: float = Field(3.0, gt=0, description="seconds to connect to an origin")
    fetch_read_timeout: float = Field(10.0, gt=0, description="seconds between bytes of an origin")
    fetch_total_timeout: float = Field(20.0, gt=0, description="seconds one URL may take")
    fetch_concurrency: int = Field(64, ge=1, description="URLs fetched at once; one client has 3/4")
    fetch_per_host: int = Field(8, ge=1, description="URLs fetched at a time from one host")
    fetch_retries: int = Field(2, ge=0, le=10, description="retries of a failed fetch")
    fetch_max_redirects: int = Field(5, ge=0, le=20, description="redirects followed")
    fetch_dns_cache: NamesKept = 30.0
    storage_allow: StoragePrefixes = ()
    storage_allow_write: StorageTargets = ()
    webhook_secret: WebhookSecrets = ()

    data_folder: DataFolder = None
    jobs_database: JobsDatabase = None
    job_retention: JobRetention = 86400.0
    max_jobs_per_client: JobsPerClient = 16
    max_job_items: JobItems = 10_000_000
    max_job_bytes: JobBytes = 16 << 30
    max_data_bytes: DataBytes = 64 << 30

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
