"""Presets: what their file may hold, and what may stand beside their name."""

from pathlib import Path
from typing import Any

import pytest

from app.intake.presets import Presets, read_presets
from models.domain.errors import InvalidParameter
from tests.pictures import png

WEB = {"ops": [{"name": "sepia"}], "format": "webp"}


@pytest.mark.parametrize(
    ("given", "expanded"),
    [
        ({"name": "sepia"}, {"name": "sepia"}),
        ({"preset": None, "name": "sepia"}, {"name": "sepia"}),
        ({"preset": "web"}, WEB),
        ({"preset": "web", "quality": "9"}, WEB | {"quality": "9"}),
        ({"preset": "wep"}, "preset: no preset 'wep'; did you mean 'web'\\? there are: web"),
        ({"preset": ["web"]}, r"preset: no preset \['web'\]; there are: web"),
        ({"preset": "none"}, "preset: no preset 'none'; there are: none on this server"),
        ({"preset": "web", "format": "webp"}, "format: beside the preset web only .*: quality, "),
        ({"preset": "web", "ops": "[]"}, "ops: beside the preset web only these options may stand"),
        ({"preset": "web", "sigma": "2"}, "sigma: beside the preset web only"),
    ],
)
def test_a_preset_is_final(given: dict[str, Any], expanded: dict[str, Any] | str) -> None:
    presets = Presets({"web": WEB} if given.get("preset") != "none" else {})
    if isinstance(expanded, dict):
        assert presets.expanded(given) == expanded
        return
    with pytest.raises(InvalidParameter, match=expanded):
        presets.expanded(given)


def test_an_overlay_has_its_picture_in_a_chain_and_alone(tmp_path: Path) -> None:
    (tmp_path / "logo.png").write_bytes(png(5))
    file, overlay = tmp_path / "presets.toml", 'name = "overlay", file = "logo.png"'
    file.write_text(f"web = {{ ops = [{{ {overlay} }}] }}\nlogo = {{ {overlay} }}")
    found = read_presets(file).by_name
    assert found["web"]["ops"] == [found["logo"]]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("[web", "cannot be read: Expected"),
        ("[web]\nname = 'sepai'", r"\[web\]: name: .*did you mean 'sepia'"),
        ("[web]\nname = 'sepia'\nquality = 900", r"\[web\]: quality: .*100"),
        ("[web]\nname = 'sepia'\nformat = 'png'\nlossless = true", "lossless: an option of WEBP"),
        ("[web]\npreset = 'other'", "cannot name another preset"),
        ("['a b']\nname = 'sepia'", r"\[a b\]: a table is needed, whose name"),
        ("web = 'sepia'", r"\[web\]: a table is needed"),
    ],
)
def test_a_wrong_file_is_refused_with_the_preset_and_the_value(
    tmp_path: Path, text: str, fault: str
) -> None:
    file = tmp_path / "presets.toml"
    file.write_text(text)
    with pytest.raises(ValueError, match=fault):
        read_presets(file)
    with pytest.raises(ValueError, match="cannot be read: No such file"):
        read_presets(tmp_path / "missing.toml")
