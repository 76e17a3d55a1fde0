"""Real local servers of S3 and Google Cloud Storage (moto), and of Azure Blob Storage (Azurite).

Each has one empty bucket.
"""

import base64
import hashlib
import hmac
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from email.utils import formatdate
from pathlib import Path

import httpx

from app.storage import buckets
from tests.ports import free_port
from tests.server import NO_TLS, PATIENCE

BUCKET = "photos"
"""Without a hyphen, which obstore escapes in requests to Google, and moto does not read so."""

_AZURE_ACCOUNT = "devstoreaccount1"
_AZURE_KEY = base64.b64encode(b"a key of this test".ljust(64, b".")).decode()


def azurite() -> str | None:
    """Return the program of Azurite: the variable AZURITE names it, or it is in PATH."""
    return os.environ.get("AZURITE") or shutil.which("azurite-blob")


@contextmanager
def s3() -> Iterator[dict[str, str]]:
    """Run an S3 server with BUCKET; yield the environment of its clients."""
    port = free_port()
    with _running(port, sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)):
        endpoint = f"http://127.0.0.1:{port}"
        httpx.put(f"{endpoint}/{BUCKET}", verify=NO_TLS, timeout=PATIENCE).raise_for_status()
        yield {
            "AWS_ENDPOINT_URL": endpoint,
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
        }


@contextmanager
def google() -> Iterator[dict[str, str]]:
    """Run a server with the XML API of Google; yield the environment of its clients."""
    port = free_port()
    with _running(port, sys.executable, "-m", "tests.google_storage", str(port)):
        endpoint = f"http://127.0.0.1:{port}"
        httpx.put(f"{endpoint}/{BUCKET}", verify=NO_TLS, timeout=PATIENCE).raise_for_status()
        account = {"gcs_base_url": endpoint, "disable_oauth": True, "client_email": ""}
        account |= {"private_key": "", "private_key_id": ""}
        yield {"GOOGLE_SERVICE_ACCOUNT_KEY": json.dumps(account)}


@contextmanager
def azure(program: str, folder: Path) -> Iterator[dict[str, str]]:
    """Run Azurite with a container BUCKET, its files in `folder`; yield its clients' variables."""
    port = free_port()
    options = ["--blobHost", "127.0.0.1", "--blobPort", str(port), "--location", str(folder)]
    options += ["--silent", "--skipApiVersionCheck", "--disableTelemetry"]
    account = {"AZURITE_ACCOUNTS": f"{_AZURE_ACCOUNT}:{_AZURE_KEY}"}
    with _running(port, program, *options, environment=account):
        endpoint = f"http://127.0.0.1:{port}/{_AZURE_ACCOUNT}"
        _make_container(endpoint)
        yield {
            "AZURE_STORAGE_ENDPOINT": endpoint,
            "AZURE_ALLOW_HTTP": "true",
            "AZURE_STORAGE_ACCOUNT_NAME": _AZURE_ACCOUNT,
            "AZURE_STORAGE_ACCOUNT_KEY": _AZURE_KEY,
        }


def _make_container(endpoint: str) -> None:
    """Create BUCKET with a request signed by Azure's scheme Shared Key."""
    headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-08-06"}
    lines = ["PUT", *[""] * 11, *(f"{name}:{value}" for name, value in headers.items())]
    resource = f"/{_AZURE_ACCOUNT}/{_AZURE_ACCOUNT}/{BUCKET}"
    text = "\n".join([*lines, resource, "restype:container"])
    digest = hmac.new(base64.b64decode(_AZURE_KEY), text.encode(), hashlib.sha256).digest()
    signature = f"SharedKey {_AZURE_ACCOUNT}:{base64.b64encode(digest).decode()}"
    url = f"{endpoint}/{BUCKET}?restype=container"
    headers["Authorization"] = signature
    httpx.put(url, headers=headers, verify=NO_TLS, timeout=PATIENCE).raise_for_status()


@contextmanager
def _running(port: int, *command: str, environment: dict[str, str] | None = None) -> Iterator[None]:
    """Run a server in a process of its own until the block ends.

    This process forgets the clients of buckets that an earlier server had.
    """
    buckets._store.cache_clear()
    process = subprocess.Popen(
        command,
        env={**os.environ, **(environment or {})},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        end = time.monotonic() + PATIENCE
        while True:
            assert process.poll() is None, f"{command[0]} ended with {process.returncode}"
            assert time.monotonic() < end, f"{command[0]} does not listen"
            with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            time.sleep(0.05)
        yield
    finally:
        process.terminate()
        process.wait(PATIENCE)
