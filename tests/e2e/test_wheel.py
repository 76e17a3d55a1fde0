"""A server from the wheel, in an environment that has an `app` package of its own."""

import json
import urllib.request
from pathlib import Path

import pytest

from tests.pictures import jpeg
from tests.server import serving
from tests.wheel import PROGRAM, installed

pytestmark = pytest.mark.slow


def test_all_processes_of_a_server_use_the_packages_of_the_wheel(tmp_path: Path) -> None:
    environment = {"PYTHONPATH": str(installed(tmp_path))}
    flags = ("--front-ends", "1", "--gpus", "0", "--weights", "bundled")
    with serving(*flags, program=PROGRAM, folder=tmp_path, environment=environment) as served:
        request = urllib.request.Request(
            f"http://127.0.0.1:{served.port}/classify?top_k=1",
            jpeg(),
            {"Content-Type": "image/jpeg"},
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            (result,) = json.loads(answer.read())["results"]
    assert result["status"] == "ok"
