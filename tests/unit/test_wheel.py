"""The wheel can be installed beside anything: all of it has one name."""

import os
import subprocess
import sys
import tarfile
import zipfile
from email import message_from_string
from importlib.util import find_spec
from pathlib import Path

import pytest
from PIL import Image

from tests.ray_cluster import ENVIRONMENT
from tests.server import PATIENCE

ROOT = Path(__file__).parents[2]

OTHERS = ("app", "models", "workers", "darkroom_client")
"""The packages of another program."""

PROGRAM = (
    sys.executable,
    "-c",
    "import sys; from darkroom.script import main; sys.exit(main())",
)
"""What the installed script `darkroom` runs."""


def installed(folder: Path) -> Path:
    """Build the source distribution, of it the wheel, and unpack the wheel beside the packages of
    another program; return the folder.

    An import of one of these other packages raises RuntimeError.
    """
    if find_spec("hatchling") is None:
        pytest.skip("hatchling, which builds the wheel, is not installed")
    build = [sys.executable, "-m", "hatchling", "build", "-d", str(folder), "-t"]
    subprocess.run([*build, "sdist"], cwd=ROOT, check=True, capture_output=True)
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as file:
        file.extractall(folder, filter="data")
    source = folder / archive.name.removesuffix(".tar.gz")
    subprocess.run([*build, "wheel"], cwd=source, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    site = folder / "site"
    with zipfile.ZipFile(wheel) as file:
        file.extractall(site)
    for name in OTHERS:
        (site / name).mkdir()
        (site / name / "__init__.py").write_text(f"raise RuntimeError('{name} of another program')")
    return site


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return installed(tmp_path_factory.mktemp("wheel"))


def run(site: Path, folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "PYTHONPATH": str(site)}
    return subprocess.run(
        [*PROGRAM, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )


def test_the_wheel_has_one_name_and_says_that_it_has_types(site: Path) -> None:
    names = {each.name.split("-")[0] for each in site.iterdir()} - {*OTHERS}
    assert names == {"darkroom", "darkroom_server"}
    assert (site / "darkroom" / "py.typed").is_file()
    assert [*site.glob("darkroom/**/darkroom_client*")] == [site / "darkroom" / "darkroom_client"]
    (metadata,) = site.glob("darkroom_server-*.dist-info/METADATA")
    classifiers = message_from_string(metadata.read_text("utf-8")).get_all("Classifier") or []
    assert "Typing :: Typed" in classifiers


def test_an_image_is_filtered_by_the_processes_that_the_command_starts(
    site: Path, tmp_path: Path
) -> None:
    Image.new("RGB", (20, 10), (255, 0, 0)).save(tmp_path / "red.png")
    operations = '[{"name": "invert"}]'
    done = run(
        site, tmp_path, "filter", "red.png", "--ops", operations, "-o", "out.png", "--gpus", "0"
    )
    assert done.returncode == 0, done.stderr
    with Image.open(tmp_path / "out.png") as found:
        assert found.convert("RGB").getpixel((3, 3)) == (0, 255, 255)


def test_ray_serve_finds_the_application_in_the_wheel(site: Path, tmp_path: Path) -> None:
    program = (
        "from darkroom.cluster import build; print(build.__module__, type(build({})).__name__)"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        cwd=tmp_path,
        env={**os.environ, **ENVIRONMENT, "PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.stdout.split() == ["darkroom.cluster", "Application"], done.stderr
