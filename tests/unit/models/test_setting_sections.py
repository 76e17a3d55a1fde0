"""The sections of the settings."""

from models.settings import SECTIONS, Settings, in_sections


def test_every_section_begins_at_a_setting_and_the_first_one_at_the_first() -> None:
    names = [*Settings.model_fields]
    assert [name for name in names if name in SECTIONS] == [*SECTIONS]
    assert names[0] == next(iter(SECTIONS))


def test_every_setting_is_in_one_section() -> None:
    found = in_sections(Settings.model_fields, Settings.model_fields)
    assert [name for names in found.values() for name in names] == [*Settings.model_fields]
    assert [*found] == [*SECTIONS.values()]


def test_only_sections_with_wanted_settings_are_there() -> None:
    found = in_sections(["fetch_ports", "gpus"], Settings.model_fields)
    assert found == {
        SECTIONS["host"]: ["gpus"],
        SECTIONS["fetch_allowed_networks"]: ["fetch_ports"],
    }
