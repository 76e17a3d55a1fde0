"""The settings file: lines NAME=value, as .env files have them; a wrong line refuses it all."""

from collections.abc import Callable, Iterable
from pathlib import Path


def check_file(file: Path, unknown: Callable[[Iterable[str]], list[str]]) -> None:
    """ValueError for a file that cannot be read, or with a line that is no setting.

    `unknown` returns those of some `DARKROOM_…` names that no setting has.
    """
    try:
        lines = file.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"the settings file {file} cannot be read: {error}") from None
    for number, line in enumerate(lines, 1):
        name, equals, _ = line.strip().removeprefix("export ").partition("=")
        name = name.strip()
        if not name or name.startswith("#"):
            continue
        if not equals or not name.upper().startswith("DARKROOM_") or unknown([name]):
            raise ValueError(
                f"the settings file {file}, line {number}: {name!r} is no setting; lines are "
                "DARKROOM_NAME=value, and `darkroom serve --help` lists all names"
            )
