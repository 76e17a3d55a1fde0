"""Packages of filters: the example of docs/add-a-filter.md, installed, and packages with faults."""

import importlib
import io
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from models.exit_codes import ExitCode
from models.plugins import PluginRefused, plugins
from tests.documentation import ROOT, blocks
from tests.pictures import drawing, encoded
from tests.ray_cluster import ENVIRONMENT
from tests.server import COLD, FILTERS, get, post, ran, serving
from workers.kernels import items, loader

EXAMPLE = ROOT / "tests/plugin_example"
PIP = (sys.executable, "-m", "pip", "install", "--no-index", "--no-deps", "--no-build-isolation")
NIGHT = "class Night(TableFilter):\n    def table(self): return np.arange(256)\n"
KERNEL = 'extern "C" __global__ void luma_sum(const Item* items, const u32* starts, int n) {}'


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the example as it is installed; `test_wheel.py` lets pip install it."""
    folder = tmp_path_factory.mktemp("site")
    shutil.copytree(EXAMPLE / "darkroom_exposure", folder / "darkroom_exposure")
    add_metadata(folder, "exposure", "1.0", "darkroom_exposure:Exposure")
    return folder


def add_metadata(folder: Path, name: str, version: str, entry: str) -> None:
    about = folder / f"darkroom_{name}-{version}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Name: darkroom-{name}\nVersion: {version}\n")
    (about / "entry_points.txt").write_text(f"[darkroom.filters]\n{name} = {entry}\n")


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
RAY = (Path(sys.executable).with_name("serve"), "run", "darkroom.cluster:build")


def faulty(folder: Path, text: str, cuda: str = "") -> None:
    """Install a package with these texts, of Python and of CUDA, in a folder."""
    (folder / "night.cu").write_text(cuda)
    (folder / "night.py").write_text(
        f"import numpy as np\nfrom darkroom.filters import *\n{text}\n"
    )
    add_metadata(folder, "night", "2.0", "night:Night")


def assert_told(found: str, begin: str, fault: str) -> None:
    whole = rf"{begin}darkroom-night 2\.0: .*; correct the package, or uninstall it\n?"
    assert re.fullmatch(whole, found)
    assert fault in found


@pytest.mark.parametrize(("text", "cuda", "fault"), FAULTS)
def test_a_fault_of_a_package_is_refused(
    text: str, cuda: str, fault: str, site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    faulty(tmp_path, text, cuda)
    monkeypatch.setattr(sys, "path", [str(tmp_path), str(site), *sys.path])
    monkeypatch.delitem(sys.modules, "workers.filters.registry")
    caches = plugins, loader.modules, loader._files, items.grid_of, items._launches
    try:
        for each in caches:
            each.cache_clear()
        with pytest.raises(PluginRefused) as refused:
            importlib.import_module("workers.filters.registry")
    finally:
        sys.modules.pop("night", None)
        for each in caches:
            each.cache_clear()
    assert_told(str(refused.value), "", fault)


@pytest.mark.parametrize(
    ("command", "begin", "code"),
    [
        (COMMAND, "darkroom: ", ExitCode.WRONG_USAGE),
        pytest.param(RAY, "Error: ", 1, marks=pytest.mark.slow),
    ],
)
def test_a_fault_of_a_package_ends_the_start(
    command: tuple[str, ...], begin: str, code: int, site: Path, tmp_path: Path
) -> None:
    text, _, fault = FAULTS[0]
    faulty(tmp_path, text)
    path = {**ENVIRONMENT, "PYTHONPATH": f"{tmp_path}:{site}:{ROOT}"}
    assert_told(ran(*command, environment=path, code=code).stderr, begin, fault)
