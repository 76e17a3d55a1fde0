"""Read the settings of a server from flags, the environment and a file, at its start and on SIGHUP.

The settings file has lines `DARKROOM_NAME=value`, as .env files have them; a wrong line refuses the
file. The environment and flags win over the file; neither can change while the server runs, so
SIGHUP changes only settings that are in the file alone.
"""

import os
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from models.did_you_mean import hint
from models.settings import PREFIX, Settings

API_KEY = f"{PREFIX}API_KEY"
"""The variable with the API key of a client; it is a secret, so it is no flag, and no setting."""


NAMES = [f"{PREFIX}{field}".upper() for field in Settings.model_fields]
"""The variables of all settings."""


def _is_unknown(name: str) -> bool:
    """Return whether a variable is a mistyped setting, which must not pass silently."""
    return name.upper().startswith(PREFIX) and name.upper() not in (API_KEY, *NAMES)


def check_file(file: Path) -> None:
    """Raise ValueError for a file that cannot be read, or with a line that is no setting."""
    try:
        lines = file.read_text("utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ValueError(f"the settings file {file} cannot be read: {reason}") from None
    for number, line in enumerate(lines, 1):
        name, equals, _ = line.strip().removeprefix("export ").partition("=")
        name = name.strip()
        if not name or name.startswith("#"):
            continue
        is_setting = name.upper().startswith(PREFIX) and not _is_unknown(name)
        if not equals or not is_setting:
            raise ValueError(
                f"the settings file {file}, line {number}: {name!r} is no setting; "
                f"{'' if is_setting else hint(name, NAMES)}lines are "
                "DARKROOM_NAME=value, and `darkroom serve --help` lists all names"
            )


def load_settings(**overrides: Any) -> Settings:
    """Read settings from `overrides`, the environment and the settings file: the first one wins.

    An empty override stands for the default. Raises ValueError, also for a variable that is no
    setting: a line for each fault names the setting, its value and the allowed values.
    """
    if unknown := sorted(filter(_is_unknown, os.environ)):
        listed = [f"unknown setting {name}; {hint(name, NAMES)}" for name in unknown]
        raise ValueError("".join(listed) + "`darkroom serve --help` lists all")
    for name, value in overrides.items():
        if value == "":
            overrides[name] = Settings.model_fields[name].get_default(call_default_factory=True)
    file = overrides.get("settings_file") or os.environ.get(f"{PREFIX}SETTINGS_FILE")
    if file:
        check_file(Path(file))
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


FIXED = frozenset({
    "host", "port", "metrics_port", "grpc_port", "front_ends", "gpus", "gpu_workers",
    "tls_certificate", "tls_key", "settings_file", "presets", "log_level", "tracing",
    "cache_folder", "precision", "optimize", "threads", "data_folder", "jobs_database",
})  # fmt: skip
"""Settings that need a restart: sockets, the number of processes, the precision, and jobs."""

IN_PLACE = frozenset({
    "max_batch_size", "max_queue_delay", "max_images_per_request", "max_body_bytes",
    "max_images_in_flight", "max_bytes_in_flight", "max_images_per_client", "rate_limit",
    "cache_control", "default_deadline", "max_deadline", "fetch_concurrency",
})  # fmt: skip
"""Settings that a server of one process changes in place; several processes are replaced."""


def reloaded(running: Settings, changeable: frozenset[str]) -> tuple[Settings, list[str]]:
    """Return the current settings, and the names of changes that need a restart.

    Settings that are not `changeable` keep their value. The text of ValueError states the fault.
    """
    found = load_settings(**running.given)
    changed = [n for n in Settings.model_fields if getattr(found, n) != getattr(running, n)]
    taken = {name: getattr(found, name) for name in changed if name in changeable}
    return running.model_copy(update=taken), [name for name in changed if name not in changeable]
