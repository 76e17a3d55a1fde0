"""Packages of filters: the example of docs/add-a-filter.md, installed, and packages with faults."""

import io
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from models.exit_codes import ExitCode
from tests.documentation import ROOT, blocks
from tests.pictures import drawing, encoded
from tests.ray_cluster import ENVIRONMENT
from tests.server import COLD, FILTERS, get, post, ran, serving

EXAMPLE = ROOT / "tests/plugin_example"
PIP = (sys.executable, "-m", "pip", "install", "--no-index", "--no-deps", "--no-build-isolation")
NIGHT = "class Night(TableFilter):\n    def table(self): return np.arange(256)\n"
KERNEL = 'extern "C" __global__ void luma_sum(const Item* items, const u32* starts, int n) {}'


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    ran(*PIP, "--target", folder, EXAMPLE)
    return folder


def test_the_page_shows_the_files_of_the_example() -> None:
    texts = "".join(each.read_text() for each in EXAMPLE.rglob("*.*") if each.suffix != ".pyc")
    page = (ROOT / "docs/add-a-filter.md").read_text()
    shown = [each.text for each in blocks(page) if each.language in {"python", "cuda", "toml"}]
    assert len(shown) == 3
    assert all(each in texts for each in shown)


def test_a_server_of_several_processes_has_the_filter(site: Path) -> None:
    environment = FILTERS | {"PYTHONPATH": f"{site}:{ROOT}"}
    pixels = np.asarray(drawing(40, 30), np.int64)
    with serving("--front-ends", "1", program=COLD, environment=environment) as server:
        url = f"http://127.0.0.1:{server.port}"
        record = get(f"{url}/filters").json()["filters"][-1]
        assert (record["name"], record["group"]) == ("exposure", "darkroom_exposure")
        assert get(url + record["thumbnail"]).status_code == 200
        assert '"exposure"' in get(f"{url}/openapi.json").text
        chain = '[{"name": "exposure", "stops": 1}, {"name": "invert"}]'
        sent = {"files": ("a.png", encoded(drawing(40, 30), "PNG"))}
        made = post(f"{url}/filter", files=sent, data={"ops": chain, "format": "png"})
        found = np.asarray(Image.open(io.BytesIO(made.content)))
        assert np.array_equal(found, 255 - np.minimum(2 * pixels, 255))
        refused = post(f"{url}/filter", files=sent, data={"name": "exposure", "stops": "9"})
        assert (refused.status_code, "from -8 to 8 " in refused.text) == (422, True)


def test_the_kernel_of_the_package_is_that_of_its_class(site: Path) -> None:
    command = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider", EXAMPLE)
    ran(*command, folder=ROOT, environment={"PYTHONPATH": f"{site}:{ROOT}"})


FAULTS = [
    ("1 / 0", "", "night:Night cannot be imported: ZeroDivisionError"),
    ("Night = dict", "", "no subclass of darkroom.filters.Filter"),
    ("class Night(TableFilter): pass", "", 'night is not complete: TypeError("Can'),
    (NIGHT + "    passes = ()", "", "night is not complete: TypeError('it has no passes"),
    (NIGHT + "    passes = (Pass('dark'),)", "", "the kernel dark states no grid"),
    (f"{NIGHT}    quality: int = 1", "", "requests have options named quality"),
    (NIGHT, '#include "night.cuh"', "night.cu includes night.cuh: no such file"),
    (NIGHT, KERNEL, "Darkroom has a kernel luma_sum too"),
    (f"{NIGHT}Night.name = 'invert'", "", "Darkroom has a filter invert too"),
    (f"{NIGHT}Night.name = 'exposure'", "", "darkroom-exposure 1.0 has a filter exposure too"),
]
COMMAND = (sys.executable, "-m", "app.cli", "filters")
RAY: tuple[str | Path, ...] = (
    Path(sys.executable).with_name("serve"),
    "run",
    "darkroom.cluster:build",
)


@pytest.mark.parametrize(
    ("command", "text", "cuda", "fault"),
    [*((COMMAND, *each) for each in FAULTS), (RAY, *FAULTS[0])],
)
def test_a_fault_of_a_package_ends_the_start(
    command: tuple[str | Path, ...], text: str, cuda: str, fault: str, site: Path, tmp_path: Path
) -> None:
    (tmp_path / "night.cu").write_text(cuda)
    (tmp_path / "night.py").write_text(
        f"import numpy as np\nfrom darkroom.filters import *\n{text}\n"
    )
    about = tmp_path / "darkroom_night-2.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Name: darkroom-night\nVersion: 2.0\n")
    (about / "entry_points.txt").write_text("[darkroom.filters]\nnight = night:Night\n")
    begin, code = ("Error", 1) if command is RAY else ("darkroom", ExitCode.WRONG_USAGE)
    path = {**ENVIRONMENT, "PYTHONPATH": f"{tmp_path}:{site}:{ROOT}"}
    done = ran(*command, environment=path, code=code)
    whole = rf"{begin}: darkroom-night 2\.0: .*; correct the package, or uninstall it\n"
    assert re.fullmatch(whole, done.stderr)
    assert fault in done.stderr
