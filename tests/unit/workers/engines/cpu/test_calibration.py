"""A precision is measured once on a machine; whatever could change the result measures again."""

import json
import platform
import time
from pathlib import Path

import pytest

from models.settings import Precision
from workers.engines.cpu import calibration
from workers.engines.cpu.calibration import LIFETIME, NAME, Calibration, processor


def test_what_was_measured_is_found_at_the_next_start(tmp_path: Path) -> None:
    Calibration([tmp_path], 2).add("resnet18", Precision.BF16)
    assert Calibration([tmp_path], 2).find("resnet18") is Precision.BF16
    assert [each.name for each in tmp_path.iterdir()] == [NAME]


def test_another_network_or_number_of_cores_is_measured_again(tmp_path: Path) -> None:
    Calibration([tmp_path], 2).add("resnet18", Precision.BF16)
    assert Calibration([tmp_path], 2).find("resnet50") is None
    assert Calibration([tmp_path], 4).find("resnet18") is None


def test_another_processor_or_release_of_torch_is_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Calibration([tmp_path], 2).add("resnet18", Precision.BF16)
    with monkeypatch.context() as patched:
        patched.setattr(calibration, "processor", lambda: "x86_64 another one")
        assert Calibration([tmp_path], 2).find("resnet18") is None
    monkeypatch.setattr("importlib.metadata.version", lambda _name: "0.0")
    assert Calibration([tmp_path], 2).find("resnet18") is None


def arm(part: str, features: str = "fp asimd bf16") -> str:
    """Return what Linux tells of one core of an ARM processor, which has no line of its model."""
    lines = ("processor\t: {}", "BogoMIPS\t: 50.00", f"Features\t: {features}")
    more = ("CPU implementer\t: 0x41", "CPU variant\t: 0x1", f"CPU part\t: {part}")
    return "\n".join([*lines, *more, "CPU revision\t: 1", ""])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (arm("0xd0c"), arm("0xd40")),
        (arm("0xd0c"), arm("0xd0c", "fp asimd")),
        (arm("0xd05"), arm("0xd05") + arm("0xd0a")),
        ("cpu\t\t: POWER9\n", "cpu\t\t: POWER10\n"),
    ],
)
def test_processors_without_a_model_name_are_told_apart(
    tmp_path: Path, one: str, other: str
) -> None:
    for name, text in (("one", one), ("other", other)):
        (tmp_path / name).write_text(text)
    assert processor(tmp_path / "one") != processor(tmp_path / "other")


def test_the_number_of_equal_cores_does_not_change_the_processor(tmp_path: Path) -> None:
    for name, count in (("one", 1), ("other", 4)):
        cores = (arm("0xd0c").format(n) for n in range(count))
        (tmp_path / name).write_text("".join(cores))
    assert processor(tmp_path / "one") == processor(tmp_path / "other")


def test_without_a_description_the_architecture_counts(tmp_path: Path) -> None:
    assert processor(tmp_path / "missing") == platform.machine()


def test_several_networks_are_kept_side_by_side(tmp_path: Path) -> None:
    kept = Calibration([tmp_path], 2)
    kept.add("resnet18", Precision.BF16)
    kept.add("resnet50", Precision.FP32)
    assert (kept.find("resnet18"), kept.find("resnet50")) == (Precision.BF16, Precision.FP32)


@pytest.mark.parametrize("seconds", [-LIFETIME - 1, 3600])
def test_a_measurement_of_last_month_or_of_the_future_is_not_used(
    tmp_path: Path, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, now = Calibration([tmp_path], 2), time.time()
    with monkeypatch.context() as patched:
        patched.setattr(time, "time", lambda: now + seconds)
        kept.add("resnet18", Precision.BF16)
        assert kept.find("resnet18") is Precision.BF16
    assert kept.find("resnet18") is None


@pytest.mark.parametrize("text", ["", "[]", "{", '{"a": 1}', "\x00"])
def test_a_damaged_file_counts_as_none_and_is_replaced(tmp_path: Path, text: str) -> None:
    (tmp_path / NAME).write_text(text)
    kept = Calibration([tmp_path], 2)
    assert kept.find("resnet18") is None
    kept.add("resnet18", Precision.FP32)
    assert kept.find("resnet18") is Precision.FP32


@pytest.mark.parametrize("entry", [1, None, {}, {"precision": "bf17", "measured": 0}])
def test_a_damaged_entry_is_measured_again(tmp_path: Path, entry: object) -> None:
    kept = Calibration([tmp_path], 2)
    kept.add("resnet18", Precision.FP32)
    (key,) = json.loads((tmp_path / NAME).read_text())
    (tmp_path / NAME).write_text(json.dumps({key: entry}))
    assert kept.find("resnet18") is None


def test_where_the_first_folder_is_read_only_the_second_one_keeps_it(tmp_path: Path) -> None:
    image, user = tmp_path / "image", tmp_path / "user"
    image.write_bytes(b"")  # a file in place of the folder: nothing can be written below it
    kept = Calibration([image, user], 2)
    kept.add("resnet18", Precision.BF16)
    assert (user / NAME).is_file()
    assert kept.find("resnet18") is Precision.BF16


def test_without_any_folder_a_start_measures_and_goes_on(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    kept = Calibration([tmp_path / "file"], 2)
    kept.add("resnet18", Precision.BF16)
    assert kept.find("resnet18") is None
