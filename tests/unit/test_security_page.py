"""`SECURITY.md` names settings that exist, with the defaults they have."""

import re
from pathlib import Path

from models.settings import PREFIX, Settings

PAGE = Path(__file__).parents[2] / "SECURITY.md"

NAMED = re.compile(rf"`{PREFIX}(\w+)`(?: \(`([^`]*)`\))?")


def test_every_setting_on_the_page_exists_and_has_the_default_it_says() -> None:
    found = NAMED.findall(PAGE.read_text())
    assert len(found) > 10
    for name, default in found:
        field = Settings.model_fields[name.lower()]
        if default:
            assert default == str(field.default), name
