"""A plain server loads no extra: it has no folder of jobs, no storage, gRPC, traces or Ray."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.pictures import png
from tests.server import get, post, serving

EXTRAS = (
    "sqlalchemy",
    "obstore",
    "grpc",
    "ray",
    "timm",
    "standardwebhooks",
    "opentelemetry.sdk",  # FastAPI itself imports the API of OpenTelemetry
    "opentelemetry.exporter",
    "app.jobs",
    "app.storage",
    "app.cluster",
    "app.grpc_service",
    "app.bulk.engine",  # the command line takes its errors from `app.bulk.errors`
    "app.bulk.journal",
    "app.bulk.sources",
    "workers.cluster",
)
BYTES = {"Content-Type": "application/octet-stream"}
BELOW = tuple(f"{each}." for each in EXTRAS)
LISTED = f"""
import atexit, sys
def listed():
    names = sorted(each for each in sys.modules if (each + ".").startswith({BELOW}))
    open(sys.argv.pop(1), "w").write(" ".join(names))
atexit.register(listed)
"""
"""A program that writes the extras it has loaded, when it ends, to its first argument."""


def test_the_modules_of_a_server_import_no_extra(tmp_path: Path) -> None:
    program = f"{LISTED}\nimport app.main, app.processes.uvicorn_server"
    subprocess.run([sys.executable, "-c", program, str(tmp_path / "loaded")], check=True)
    assert (tmp_path / "loaded").read_text() == ""


@pytest.mark.slow
def test_a_plain_server_that_has_answered_has_loaded_no_extra(tmp_path: Path) -> None:
    path = tmp_path / "loaded"
    program = LISTED.replace("sys.argv.pop(1)", repr(str(path)))
    program += "from app.cli.script import main\nsys.exit(main())"
    started = (sys.executable, "-c", program)
    with serving("--weights", "random", "--networks", "resnet18", program=started) as server:
        url = f"http://127.0.0.1:{server.port}"
        for operation in ("filter?name=invert", "classify"):
            assert post(f"{url}/{operation}", content=png(), headers=BYTES).status_code == 200
        refused = post(f"{url}/classify", json={"images": [{"url": "file:///etc/passwd"}]})
        assert "DARKROOM_STORAGE_ALLOW" in refused.text
        assert get(f"{url}/jobs").json()["code"] == "jobs_disabled"
        assert get(f"{url}/openapi.json").status_code == get(f"{url}/").status_code == 200
    assert path.read_text() == ""
