"""Settings from flags, the environment and a file: values, faults, sections, reloading."""

from pathlib import Path

import pytest

from models.networks.registry import BUNDLED, RESNET18, RESNET34, RESNET50
from models.settings import PREFIX, SECTIONS, Settings, in_sections
from models.settings_loading import IN_PLACE, load_settings, reloaded
from models.weights.sources import Auto, LocalFile, Random, resolve_all, served_specs

DEFAULTS = Settings()
BOM = "\ufeff"


@pytest.mark.parametrize("name", Settings.model_fields)
def test_an_empty_variable_is_as_good_as_none(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"{PREFIX}{name.upper()}", "")
    assert load_settings() == DEFAULTS


def test_an_empty_flag_or_line_of_a_file_is_as_good_as_none(tmp_path: Path) -> None:
    file = tmp_path / "empty.env"
    names = [name for name in Settings.model_fields if name != "settings_file"]
    file.write_text("".join(f"{PREFIX}{name.upper()}=\n" for name in names))
    found = load_settings(settings_file=str(file))
    assert found.model_dump() == {**DEFAULTS.model_dump(), "settings_file": file}
    assert load_settings(**dict.fromkeys(names, "")).model_dump() == DEFAULTS.model_dump()


def test_a_file_with_a_byte_order_mark_decides_where_the_variable_is_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (file := tmp_path / "some.env").write_text(f"{BOM}DARKROOM_PORT=8123\nDARKROOM_GRACE=1\n")
    monkeypatch.setenv("DARKROOM_PORT", "")
    found = load_settings(settings_file=str(file))
    assert (found.port, found.grace) == (8123, 1.0)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("67108864", 64 << 20),
        ("64M", 64 << 20),
        ("64m", 64 << 20),
        ("64MiB", 64 << 20),
        ("64 MiB", 64 << 20),
        ("64MB", 64_000_000),
        ("512k", 512 << 10),
        ("1.5G", 3 << 29),
        ("1T", 1 << 40),
        ("100B", 100),
    ],
)
def test_sizes_have_units(text: str, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert load_settings(max_image_bytes=text).max_image_bytes == number
    monkeypatch.setenv("DARKROOM_MAX_DATA_BYTES", text)
    assert load_settings().max_data_bytes == number


def test_every_setting_of_bytes_or_pixels_has_units_which_are_decimal_for_pixels() -> None:
    sized = {name for name in Settings.model_fields if "bytes" in name or "pixels" in name}
    sized |= {"result_cache"}
    for name in sized:
        assert getattr(load_settings(**{name: "2M"}), name) in (2 << 20, 2_000_000), name
    for text in ["12.5M", "12500k", "12.5MP", "12500000"]:
        assert load_settings(max_pixels=text).max_pixels == 12_500_000


def test_another_unit_is_refused_with_what_is_allowed() -> None:
    for text in ["64Q", "64 M B", "M", "1.5", "1,5M", "0x10", "1e6", "\u0661M"]:
        with pytest.raises(ValueError, match=r"--max-image-bytes: write a number, .*MiB.*given: "):
            load_settings(max_image_bytes=text)


def test_each_wrong_value_is_a_line_in_our_words(tmp_path: Path) -> None:
    (file := tmp_path / "wrong.env").write_text("DARKROOM_GRACE=-1\nDARKROOM_GPUS=many\n")
    with pytest.raises(ValueError) as caught:  # noqa: PT011 (its text is compared)
        load_settings(settings_file=str(file), port="99999")
    assert str(caught.value).splitlines() == [
        "--port: Input should be less than or equal to 65535 (given: '99999')",
        "DARKROOM_GPUS: String should match pattern '^(auto|[0-9]{1,3})$' (given: 'many')",
        "DARKROOM_GRACE: Input should be greater than or equal to 0 (given: '-1')",
    ]


def test_a_user_without_a_home_is_told_to_name_a_cache_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_home() -> Path:
        raise RuntimeError

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    with pytest.raises(ValueError, match="has no home folder; set DARKROOM_CACHE_FOLDER"):
        load_settings()
    assert load_settings(cache_folder=tmp_path).cache_folder == tmp_path


def written(folder: Path, *lines: str) -> Path:
    file = folder / "darkroom.env"
    file.write_text("\n".join(lines) + "\n")
    return file


def test_flags_and_the_environment_win_over_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = ("# limits", "DARKROOM_MAX_BATCH_SIZE=4", "DARKROOM_GRACE=1", "DARKROOM_THREADS=3")
    file = written(tmp_path, *lines)
    monkeypatch.setenv("DARKROOM_GRACE", "2")
    found = load_settings(settings_file=str(file), threads="1")
    assert (found.max_batch_size, found.grace, found.threads) == (4, 2.0, 1)


def test_a_wrong_line_or_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    for line, text in [
        ("DARKROOM_MAX_BATCH=4", "line 2: 'DARKROOM_MAX_BATCH' is no setting"),
        ("PATH=/bin", "line 2: 'PATH' is no setting"),
        ("DARKROOM_GRACE", "line 2: 'DARKROOM_GRACE' is no setting"),
        ("DARKROOM_GRACE=-1", "DARKROOM_GRACE: Input should be greater"),
    ]:
        with pytest.raises(ValueError, match=text):
            load_settings(settings_file=str(written(tmp_path, "", line)))
    with pytest.raises(ValueError, match="cannot be read"):
        load_settings(settings_file=str(tmp_path / "none.env"))


def test_what_changed_is_taken_and_what_needs_a_restart_is_named(tmp_path: Path) -> None:
    file = written(tmp_path, "DARKROOM_MAX_IMAGES_IN_FLIGHT=7")
    running = load_settings(settings_file=str(file), max_batch_size="4")
    written(tmp_path, "DARKROOM_MAX_IMAGES_IN_FLIGHT=9", "DARKROOM_THREADS=3")
    found, later = reloaded(running, IN_PLACE)
    assert (found.max_images_in_flight, found.max_batch_size) == (9, 4)
    assert (found.threads, later) == (running.threads, ["threads"])


def test_every_setting_is_in_one_section_which_begins_at_its_first() -> None:
    names = [*Settings.model_fields]
    assert [name for name in names if name in SECTIONS] == [*SECTIONS]
    found = in_sections(names, names)
    assert [name for section in found.values() for name in section] == names
    assert [*found] == [*SECTIONS.values()]
    assert in_sections(["fetch_ports", "gpus"], names) == {
        SECTIONS["host"]: ["gpus"],
        SECTIONS["fetch_allowed_networks"]: ["fetch_ports"],
    }


def of(**settings: str) -> Settings:
    return Settings.model_validate(settings)


def test_the_networks_are_served_in_the_order_of_the_setting() -> None:
    assert served_specs(Settings()) == [RESNET18]
    assert served_specs(of(networks="resnet50, resnet18")) == [RESNET50, RESNET18]


def test_a_wrong_list_of_networks_is_refused_with_the_choices() -> None:
    for names in ["resnet51", "resnet18,resnet18", ""]:
        with pytest.raises(ValueError, match="there are resnet18, resnet34, resnet50"):
            of(networks=names)


def test_one_value_of_weights_is_for_every_network_and_auto_falls_back_where_it_can() -> None:
    both = "resnet18,resnet34"
    found = resolve_all(of(networks=both, weights="random:7"))
    assert found == {"resnet18": Random(7), "resnet34": Random(7)}
    found = resolve_all(of(networks=both))
    assert found["resnet18"] == Auto(RESNET18.weights[0], BUNDLED)
    assert found["resnet34"] == RESNET34.weights[0]


def test_networks_may_have_weights_of_their_own() -> None:
    digest = "a" * 64
    settings = of(
        networks="resnet18,resnet34,resnet50",
        weights="resnet18=bundled,resnet50=own.pth",
        weights_labels="resnet50=labels.txt",
        weights_sha256=f"resnet50={digest}",
    )
    found = resolve_all(settings)
    assert found["resnet18"] is BUNDLED
    assert found["resnet34"] == RESNET34.weights[0]
    assert isinstance(found["resnet50"], LocalFile)
    assert (str(found["resnet50"].path), found["resnet50"].sha256) == ("own.pth", digest)
    assert str(found["resnet50"].labels_path) == "labels.txt"


@pytest.mark.parametrize(
    ("networks", "weights", "text"),
    [
        ("resnet18,resnet50", "bundled", "no weights 'bundled' of resnet50; there are auto, image"),
        ("resnet18", "resnet50=random", "'resnet50', but the networks are resnet18"),
    ],
)
def test_weights_that_fit_no_network_are_refused(networks: str, weights: str, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        resolve_all(of(networks=networks, weights=weights))
