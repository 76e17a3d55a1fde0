"""Darkroom's Serve configuration on a real Ray: what clients see is what one server answers."""

import io
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import yaml
from PIL import Image

from tests.pictures import jpeg
from tests.ports import free_port
from tests.ray_cluster import ENVIRONMENT, ROOT, running_ray
from tests.server import PATIENCE, until

CONFIGURATION = ROOT / "docker/ray/serve.yaml"


@contextmanager
def serve_run(folder: Path, address: str, settings: Mapping[str, Any]) -> Iterator[str]:
    """Run the configuration with another port on the Ray at `address`; yield the server's URL."""
    port = free_port()
    found = yaml.safe_load(CONFIGURATION.read_text())
    found["http_options"]["port"] = port
    found["applications"][0]["args"] = dict(settings)
    (folder / "serve.yaml").write_text(yaml.safe_dump(found))
    environment = {**os.environ, **ENVIRONMENT, "PYTHONPATH": str(ROOT)}
    command = [str(Path(sys.executable).with_name("serve")), "run", str(folder / "serve.yaml")]
    command += ["--address", address]
    log, url = folder / "serve.log", f"http://127.0.0.1:{port}"

    def ready() -> bool:
        assert process.poll() is None, log.read_text()[-3000:]
        try:
            return httpx.get(f"{url}/readyz", timeout=5).status_code == 200
        except httpx.TransportError:
            return False

    with log.open("wb") as written:
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=written, stderr=written
        )
    try:
        until(ready)
        yield url
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(PATIENCE)


pytestmark = pytest.mark.slow

SETTINGS = {"weights": "random", "precision": "fp32", "threads": 1, "default_deadline": 100}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Run the configuration for all tests of this file."""
    with (
        running_ray(cpus=3) as address,
        serve_run(tmp_path_factory.mktemp("serve"), address, SETTINGS) as found,
    ):
        yield found


def test_files_are_labelled_each_with_its_own_answer(url: str) -> None:
    files = [("files", (f"{n}.jpg", jpeg(n, 60, 40))) for n in range(9)]
    files.insert(4, ("files", ("bad.jpg", b"no image")))
    records = httpx.post(f"{url}/classify", files=files, timeout=PATIENCE).json()["results"]
    assert [each["status"] for each in records] == ["ok"] * 4 + ["error"] + ["ok"] * 5
    assert records[4]["error"]["code"] == "unsupported_media"


def test_pixels_and_filters_cross_and_come_back(url: str) -> None:
    pixels = np.random.default_rng(1).integers(0, 255, (300, 200, 4), np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "png")
    answer = httpx.post(
        f"{url}/filter?name=invert&format=png",
        content=file.getvalue(),
        headers={"Content-Type": "image/png"},
        timeout=PATIENCE,
    )
    with Image.open(io.BytesIO(answer.content)) as image:
        found = np.asarray(image)
    assert np.array_equal(found[..., :3], 255 - pixels[..., :3])
