"""`darkroom kernels`: what it refuses, and what it compiles."""

import sys
from pathlib import Path

import pytest

from app.bulk.errors import CannotWrite, WrongUsage
from app.cli.commands.kernels import run
from models.exit_codes import ExitCode
from models.settings import Settings


def settings(folder: Path) -> Settings:
    return Settings(cache_folder=folder)


def test_words_in_place_of_architectures_are_refused(tmp_path: Path) -> None:
    with pytest.raises(WrongUsage, match=r"numbers between commas, as 80,90 .given: 'hopper'"):
        run(settings(tmp_path), "90,hopper")


def test_without_cupy_the_command_says_what_to_install(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "workers.engines.cuda.nvrtc", None)
    assert run(settings(tmp_path), "90") == ExitCode.FAILED
    assert 'pip install ".[gpu]"' in capsys.readouterr().err


@pytest.fixture
def nvrtc(monkeypatch: pytest.MonkeyPatch) -> type:
    """Replace NVRTC by a compiler that is quick."""

    class Quick:
        version = "quick 1.0"
        architectures = frozenset({"sm_80", "sm_90", "sm_100"})

        def compile(self, _text: str, name: str, options: tuple[str, ...]) -> bytes:
            return f"{name} {options[-1]}".encode()

    module = type(sys)("nvrtc")
    vars(module)["Nvrtc"] = Quick
    monkeypatch.setitem(sys.modules, "workers.engines.cuda.nvrtc", module)
    return Quick


@pytest.mark.usefixtures("nvrtc")
def test_an_architecture_or_a_folder_that_cannot_be_is_named(tmp_path: Path) -> None:
    with pytest.raises(WrongUsage, match="compiles for sm_80, sm_90, sm_100, not for sm_20"):
        run(settings(tmp_path), "90,20")
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(CannotWrite, match=f"{tmp_path}/file/kernels"):
        run(settings(tmp_path / "file"), "90")


@pytest.mark.usefixtures("nvrtc")
def test_every_module_is_kept_where_a_worker_looks_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(settings(tmp_path), "80,90") == ExitCode.OK
    shown = capsys.readouterr().out
    for name in ("sm_80", "sm_90"):
        files = [path.name for path in (tmp_path / "kernels" / name).iterdir()]
        assert any(each.startswith("filters.rank.median-") for each in files)
        assert f"{name}: {len(files)} modules" in shown
