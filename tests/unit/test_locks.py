"""The lock files: they pin every extra, fit beside each other, and each has one CUDA major."""

import re
import tomllib
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name as canonical

from tools.audit import LOCKS

ROOT = Path(__file__).parents[2]
EXTRAS, DEV = "requirements-extras.lock", "requirements-dev.lock"
STACKS = [
    ("requirements-gpu.lock", "gpu", 12),
    ("requirements-gpu-cuda13.lock", "gpu-cuda13", 13),
]


def versions(lock: str) -> dict[str, str]:
    """Return the version of each package; of one with several, the last."""
    return {each.name: str(each.specifier).removeprefix("==") for each in pins(lock)}


def entries(lock: str) -> dict[str, set[str]]:
    """Return the hashes of each line of a lock file, which states one package at one version,
    without its marker.
    """
    found: dict[str, set[str]] = {}
    current = set[str]()
    for line in (ROOT / lock).read_text().splitlines():
        text = line.strip(" \\")
        if re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", text):
            current.add(text)
        elif text and not text.startswith("#"):
            current = found.setdefault(text.partition(";")[0].strip(), set())
    return found


def pins(lock: str) -> list[Requirement]:
    """Return the requirements that a lock file's lines state, without their hashes."""
    return [*map(Requirement, entries(lock))]


def test_every_locked_package_has_one_version_and_hashes_and_no_address_of_an_index() -> None:
    for lock in LOCKS:
        assert entries(lock)
        for line, hashes in entries(lock).items():
            pin = Requirement(line)
            assert re.fullmatch(r"==[\w.+!]+", str(pin.specifier)), f"{line}: not one version"
            assert hashes, f"{line} has no hash"
            assert not pin.url


def test_the_gpu_lock_file_changes_no_version_of_the_one_below_it() -> None:
    assert entries("requirements.lock").items() <= entries("requirements-gpu.lock").items()


def test_the_cpu_lock_file_has_no_cuda_and_the_versions_of_the_other_one() -> None:
    plain, cpu = entries("requirements.lock"), entries("requirements-cpu.lock")
    assert not [name for name in cpu if name.startswith(("nvidia-", "cuda-", "cupy", "triton"))]
    (torch,) = (each for each in cpu if each.startswith("torch=="))
    assert torch.endswith("+cpu")
    del cpu[torch]
    assert cpu.items() <= plain.items()


def required_with_extras(pin: Requirement) -> list[Requirement]:
    """Return what an installed package requires with an extra, on this system and Python."""
    try:
        stated = map(Requirement, requires(pin.name) or [])
    except PackageNotFoundError:  # it belongs to another system, or to the documentation
        return []
    extras = ["", *pin.extras]
    return [
        each
        for each in stated
        if each.extras
        and (not each.marker or any(each.marker.evaluate({"extra": extra}) for extra in extras))
    ]


def test_a_lock_pins_each_extra_that_a_package_requires() -> None:
    for lock in sorted(path.name for path in ROOT.glob("requirements*.lock")):
        found = {canonical(each.name): each for each in pins(lock)}
        for pin in found.values():
            for required in required_with_extras(pin):
                # pip before 23.3 takes the newest version where no line names the extra.
                assert required.extras <= found[canonical(required.name)].extras, (
                    f"{pin}: {required}"
                )


def test_a_lock_has_the_cuda_libraries_of_one_major() -> None:
    for lock, _extra, major in STACKS:
        found = versions(lock)
        named = {
            name: int(of[1]) for name in found if (of := re.search(r"-(?:cu|cuda)(\d\d)x?$", name))
        }
        assert set(named.values()) == {major}
        assert f"cupy-cuda{major}x" in named
        suffix = "-cu12" if major == 12 else ""
        for library in ("nvjpeg", "cuda-nvrtc", "cuda-runtime"):
            assert found[f"nvidia-{library}{suffix}"].split(".")[0] == str(major)


def test_a_lock_has_every_package_of_its_extras() -> None:
    extras = ((EXTRAS, name) for name in ("grpc", "otel", "parquet", "postgres", "storage"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for lock, extra in (*extras, *(each[:2] for each in STACKS)):
        stated = project["optional-dependencies"][extra]
        assert {re.split(r"[\[<>=;]", each)[0] for each in stated} <= versions(lock).keys()


@pytest.mark.parametrize(
    ("lock", "beside"),
    [
        *((EXTRAS, each) for each in ("requirements.lock", DEV, *(name for name, *_ in STACKS))),
        ("requirements-docs.lock", DEV),
    ],
)
def test_a_lock_can_be_installed_beside_another(lock: str, beside: str) -> None:
    own, other = versions(lock), versions(beside)
    shared = own.keys() & other.keys()
    assert {name: own[name] for name in shared} == {name: other[name] for name in shared}
