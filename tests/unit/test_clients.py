"""The distributions of clients: what they import and what their wheels hold."""

import importlib.util
import sys
import tomllib
import zipfile
from email import message_from_string
from pathlib import Path

import pytest

from tests.server import ran
from tests.unit.test_architecture import imports

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "clients/python"
FILES = sorted((FOLDER / "src/darkroom_client").rglob("*.py"))


def imported(path: Path) -> set[str]:
    """Return the packages that a file imports."""
    return {name.split(".")[0] for name in imports(path)}


def test_the_client_imports_its_dependencies_and_nothing_of_the_server() -> None:
    for path in FILES:
        project = tomllib.loads((FOLDER / "pyproject.toml").read_text())["project"]
        declared = {each.split(">")[0] for each in project["dependencies"]}
        assert declared == {"httpx", "msgspec"}
        assert imported(path) <= {*sys.stdlib_module_names, "darkroom_client", *declared}


def test_examples_need_only_the_client() -> None:
    for path in sorted((FOLDER / "examples").glob("*.py")):
        assert imported(path) <= {*sys.stdlib_module_names, "darkroom_client"}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the wheel and the source distribution, built without a network."""
    if importlib.util.find_spec("hatchling") is None:
        pytest.skip("hatchling, which builds the wheel, is not installed")
    folder = tmp_path_factory.mktemp("client")
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
    ran(*command, folder=FOLDER)
    return folder


def test_the_wheel_holds_the_package_its_types_and_its_licence(built: Path) -> None:
    (wheel,) = built.glob("darkroom_client-*.whl")
    with zipfile.ZipFile(wheel) as file:
        names = set(file.namelist())
        (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        described = message_from_string(file.read(metadata).decode())
        (licence,) = (name for name in names if name.endswith("licenses/LICENSE"))
        assert file.read(licence) == (ROOT / "LICENSE").read_bytes()
    assert "darkroom_client/py.typed" in names
    assert {name.split("/")[0].split("-")[0] for name in names} == {"darkroom_client"}
    assert {path.name for path in FILES} <= {Path(name).name for name in names}
    assert described.get_all("Requires-Dist") == ["httpx<1,>=0.28", "msgspec<1,>=0.20"]
    assert "Typing :: Typed" in (described.get_all("Classifier") or [])


def test_the_client_works_without_the_server_installed(built: Path, tmp_path: Path) -> None:
    (wheel,) = built.glob("darkroom_client-*.whl")
    code = (
        f"import sys; sys.path.insert(0, {str(wheel)!r}); import darkroom_client, "
        "darkroom_client.webhooks; from importlib.metadata import version; "
        "assert {'app', 'models', 'workers', 'darkroom', 'numpy', 'torch'}.isdisjoint(sys.modules);"
        "print(version('darkroom-client'), darkroom_client.__file__)"
    )
    done = ran(sys.executable, "-c", code, folder=tmp_path)
    assert done.stdout.startswith("0.1.0 ")
    assert str(wheel) in done.stdout


def test_client_and_server_have_the_same_version() -> None:
    server = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert tomllib.loads((FOLDER / "pyproject.toml").read_text())["project"]["version"] == server
