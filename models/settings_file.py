"""The settings file: lines NAME=value, as .env files have them; one wrong line refuses the file."""

from collections.abc import Collection, Iterable
from pathlib import Path

from models.did_you_mean import hint

PREFIX = "DARKROOM_"
"""The beginning of the name of every setting that is a variable."""


API_KEY = f"{PREFIX}API_KEY"
"""The variable with the API key of a client; it is a secret, so it is no flag, and no setting."""


def unknown_variables(names: Iterable[str], fields: Collection[str]) -> list[str]:
    """Return the `DARKROOM_…` names among `names` that are none of the settings `fields`.

    A mistyped setting must not pass silently.
    """
    known = {API_KEY, *(f"{PREFIX}{field}".upper() for field in fields)}
    return sorted(n for n in names if n.upper().startswith(PREFIX) and n.upper() not in known)


def unknown_settings(names: Iterable[str], fields: Collection[str]) -> str:
    """Return the message for variables that are no settings."""
    known = [f"{PREFIX}{field}".upper() for field in fields]
    listed = [f"unknown setting {name}; {hint(name, known)}" for name in names]
    return "".join(listed) + "`darkroom serve --help` lists all"


def check_file(file: Path, fields: Collection[str]) -> None:
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
        is_setting = name.upper().startswith(PREFIX) and not unknown_variables([name], fields)
        if not equals or not is_setting:
            known = [f"{PREFIX}{field}".upper() for field in fields]
            raise ValueError(
                f"the settings file {file}, line {number}: {name!r} is no setting; "
                f"{'' if is_setting else hint(name, known)}lines are "
                "DARKROOM_NAME=value, and `darkroom serve --help` lists all names"
            )
