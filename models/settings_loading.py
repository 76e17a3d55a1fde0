"""Read the settings of a server from flags, the environment and a file."""

import os
from pathlib import Path
from typing import Any

from models.settings import Settings
from models.settings_file import PREFIX, check_file, unknown_settings, unknown_variables


def load_settings(**overrides: Any) -> Settings:
    """Read settings from `overrides`, the environment and the settings file: the first one wins.

    Raises ValueError, which tells what is wrong, also for a variable that is no setting.
    """
    if unknown := unknown_variables(os.environ, Settings.model_fields):
        raise ValueError(unknown_settings(unknown, Settings.model_fields))
    file = overrides.get("settings_file") or os.environ.get(f"{PREFIX}SETTINGS_FILE")
    if file:
        check_file(Path(file), Settings.model_fields)
    return Settings.of(overrides, file)
