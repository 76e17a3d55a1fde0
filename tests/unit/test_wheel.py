"""The wheel can be installed beside anything: all of it has one name."""

import sys
import tarfile
import zipfile
from email import message_from_string
from importlib.util import find_spec
from pathlib import Path

import pytest
from PIL import Image

from tests.e2e.test_plugins import EXAMPLE, PIP
from tests.ray_cluster import ENVIRONMENT
from tests.server import ran

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
    another program; install a package of filters there; return the folder.

    An import of one of these other packages raises RuntimeError.
    """
    if find_spec("hatchling") is None:
        pytest.skip("hatchling, which builds the wheel, is not installed")
    build = [sys.executable, "-m", "hatchling", "build", "-d", str(folder), "-t"]
    ran(*build, "sdist", folder=ROOT)
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as file:
        file.extractall(folder, filter="data")
    source = folder / archive.name.removesuffix(".tar.gz")
    ran(*build, "wheel", folder=source)
    (wheel,) = folder.glob("*.whl")
    site = folder / "site"
    with zipfile.ZipFile(wheel) as file:
        file.extractall(site)
    for name in OTHERS:
        (site / name).mkdir()
        (site / name / "__init__.py").write_text(f"raise RuntimeError('{name} of another program')")
    ran(*PIP, "--target", site, EXAMPLE)
    return site


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return installed(tmp_path_factory.mktemp("wheel"))


def test_the_wheel_has_one_name_and_says_that_it_has_types(site: Path) -> None:
    names = {each.name.split("-")[0] for each in site.iterdir()} - {*OTHERS, "darkroom_exposure"}
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
    operations = '[{"name": "invert"}, {"name": "exposure", "stops": -1}]'
    words = ("filter", "red.png", "--ops", operations, "-o", "out.png", "--gpus", "0")
    ran(*PROGRAM, *words, folder=tmp_path, environment={"PYTHONPATH": str(site)})
    with Image.open(tmp_path / "out.png") as found:
        assert found.convert("RGB").getpixel((3, 3)) == (0, 128, 128)


@pytest.mark.slow
def test_ray_serve_finds_the_application_in_the_wheel(site: Path, tmp_path: Path) -> None:
    program = (
        "from darkroom.cluster import build; print(build.__module__, type(build({})).__name__)"
    )
    variables, command = {**ENVIRONMENT, "PYTHONPATH": str(site)}, (sys.executable, "-W", "ignore")
    done = ran(*command, "-c", program, folder=tmp_path, environment=variables)
    assert done.stdout.split() == ["darkroom.cluster", "Application"], done.stderr
