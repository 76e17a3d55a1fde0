"""Presets: options of `POST /filter` that an operator keeps in a TOML file under names."""

import hashlib
import re
import reprlib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from app.http.problems import read
from app.intake.wanted import AS_SOURCE, chain_of, version_of
from models.api.schemas import EncodingOptions, FilterOptions
from models.codec import decode, pixels_of
from models.did_you_mean import hint
from models.domain.errors import FieldError, InvalidParameter, ServiceError
from workers.filters.marks import MOST_PICTURE, picture_of

NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""A name of a preset: a bare key of TOML."""


@dataclass(frozen=True, slots=True, eq=False)
class Presets:
    """The options of each preset by its name, and the digest of their file.

    `listed` are the same options as the file has them: names of pictures in place of pictures.
    """

    by_name: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    listed: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    digest: str = ""

    def expanded(self, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return options with those of the preset that they name, which are final.

        Beside a preset only output options may stand that the preset leaves open. Raises
        InvalidParameter for other options, and for an unknown preset.
        """
        rest = {name: value for name, value in given.items() if name != "preset"}
        if (name := given.get("preset")) is None:
            return rest
        if not isinstance(name, str) or name not in self.by_name:
            known = ", ".join(self.by_name) or "none on this server"
            near = hint(name, self.by_name) if isinstance(name, str) else ""
            text = f"no preset {reprlib.repr(name)}; {near}there are: {known}"
            raise InvalidParameter.of("preset", text, name)
        preset = self.by_name[name]
        left = [each for each in EncodingOptions.model_fields if each not in preset]
        text = f"beside the preset {name} only these options may stand: {', '.join(left)}"
        if wrong := [FieldError(each, text, rest[each]) for each in rest if each not in left]:
            raise InvalidParameter(f"{wrong[0].path[:60]}: {text}", wrong)
        return {**preset, **rest}


NO_PRESETS = Presets()


def read_presets(file: Path | None) -> Presets:
    """Return the presets of a file; raises ValueError with the preset and the value that is wrong.

    Each table of the file is a preset, with options as a JSON body of `POST /filter` has them.
    """
    if file is None:
        return NO_PRESETS
    try:
        data = file.read_bytes()
        found = tomllib.loads(data.decode("utf-8-sig"))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ValueError(f"the presets {file} cannot be read: {reason}") from None
    by_name = {}
    for name, options in found.items():
        where = f"the presets {file}, [{name}]"
        if not NAME.fullmatch(name) or not isinstance(options, dict):
            raise ValueError(
                f"{where}: a table is needed, whose name has 1 to 64 of A-Z a-z 0-9 _ -"
            )
        try:
            by_name[name] = options = _with_pictures(options, file.parent)
            asked = read(FilterOptions, options)
            if asked.preset is not None:
                raise ValueError(f"{where}: a preset cannot name another preset")
            version_of(chain_of(asked), asked, AS_SOURCE)
        except (OSError, ServiceError) as error:
            raise ValueError(f"{where}: {error}") from None
    digest = hashlib.sha256(data + repr(by_name).encode()).hexdigest()
    return Presets(by_name, found, digest)


def _with_pictures(given: Any, folder: Path) -> Any:
    """Return options, or a filter, whose overlays have the picture of their `file` below the
    folder.
    """
    if not isinstance(given, dict):
        return given
    made = dict(given)
    if isinstance(ops := given.get("ops"), list):
        made["ops"] = [_with_pictures(op, folder) for op in ops]
    if given.get("name") == "overlay" and isinstance(given.get("file"), str):
        decoded = decode((folder / made.pop("file")).read_bytes(), max_pixels=MOST_PICTURE)
        made["picture"] = picture_of(pixels_of(decoded.image).pixels)
    return made
