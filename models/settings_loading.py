"""Read the settings of a server from flags, the environment and a file."""

import os
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from models.settings import Settings
from models.settings_file import PREFIX, check_file, unknown_settings, unknown_variables


def load_settings(**overrides: Any) -> Settings:
    """Read settings from `overrides`, the environment and the settings file: the first one wins.

    An empty override stands for the default. Raises ValueError, also for a variable that is no
    setting: a line for each fault names the setting, its value and what is allowed.
    """
    if unknown := unknown_variables(os.environ, Settings.model_fields):
        raise ValueError(unknown_settings(unknown, Settings.model_fields))
    for name, value in overrides.items():
        if value == "":
            overrides[name] = Settings.model_fields[name].get_default(call_default_factory=True)
    file = overrides.get("settings_file") or os.environ.get(f"{PREFIX}SETTINGS_FILE")
    if file:
        check_file(Path(file), Settings.model_fields)
    try:
        return Settings.of(overrides, file)
    except ValidationError as error:
        raise ValueError("\n".join(_faults(error, overrides))) from None


def _faults(error: ValidationError, flags: Collection[str]) -> Iterator[str]:
    for each in error.errors(include_url=False):
        name = str(each["loc"][0])
        shown = "--" + name.replace("_", "-") if name in flags else PREFIX + name.upper()
        message = each["msg"].removeprefix("Value error, ")
        yield f"{shown}: {message} (given: {each['input']!r})"
