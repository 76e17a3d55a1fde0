"""Makes docs/filters.md and its pictures from the registry: `make docs`.

A test compares the page with what this makes of the filters, so it never lies for long.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from PIL import Image as PillowImage

from app.responses.thumbnails import as_pillow, example, scene
from models.domain.image import Image
from workers.filters.messages import allowed
from workers.filters.registry import FILTERS, describe

PAGE = Path(__file__).parents[1] / "docs/filters.md"
PICTURES = PAGE.with_suffix("")
BEFORE = "before"
"""The picture that all filters were given."""

ALPHA = {
    "point": "kept; colours are filtered without regard to it",
    "premul": "filtered too; colours weigh as much as they are opaque",
    "plane": "filtered as one more plane",
    "keep": "kept as it is",
    "drop": "dropped",
}
RESULT = {
    "same": "the size and channels of the image",
    "colour": "RGB, for grey images too",
    "no alpha": "no alpha",
    "turned": "its sides may have changed places",
}

HEAD = """# Filters

Made by `make docs` from the filters themselves; do not edit. A running server says the same as
JSON at `GET /filters`, and shows each filter at `GET /filters/{name}/thumbnail`.

A request names one filter, `POST /filter?name=gaussian_blur&sigma=2`, or a chain of them as `ops`.
Parameters that are left out have their defaults; a wrong one is answered with what is allowed.
Images have 8 bits a channel and are grey, RGB, or RGB with alpha. The tolerance is how far the
pixels may be from those of the reference a filter is tested against. All filters have GPU kernels:
a chain runs on the GPU where there is one.
"""


CURL = "$ curl localhost:8000/filter -F files=@photo.png -o filtered.png"


def page() -> str:
    """The whole page."""
    names = ", ".join(f"[{name}](#{name})" for name in FILTERS)
    return "\n".join([HEAD, names, "", *(section(name) for name in FILTERS)])


def section(name: str) -> str:
    """One filter: what it does, before and after, its parameters and rules, a request."""
    filter_, said = FILTERS[name], describe(FILTERS[name])
    rules = {
        "Alpha": ALPHA.get(said["alpha"], said["alpha"]),
        "Border": said["border"],
        "Result": RESULT.get(said["result_shape"], said["result_shape"]),
        "Tolerance": said["tolerance"],
        "GPU kernels": "yes" if filter_.passes else "no",
    }
    return "\n".join(
        [
            f"## {name}",
            "",
            said["description"],
            "",
            f"![{BEFORE}](filters/{BEFORE}.webp) ![{name}](filters/{name}.webp)",
            "",
            *_parameters(said["parameters"]),
            " · ".join(f"{rule}: {text}" for rule, text in rules.items() if text),
            "",
            "```console",
            f"{CURL} -F 'ops={json.dumps([said['example']])}'",
            "```",
            "",
        ]
    )


def write() -> None:
    """The page and its pictures; those of filters that are no more are removed."""
    PAGE.write_text(page())
    PICTURES.mkdir(exist_ok=True)
    pictures = {BEFORE: scene()} | {name: example(name) for name in FILTERS}
    for name, picture in pictures.items():
        path = PICTURES / f"{name}.webp"
        if not _holds(path, picture):
            as_pillow(picture).save(path, lossless=True, exact=True)
    for path in PICTURES.iterdir():
        if path.stem not in pictures:
            path.unlink()


def _holds(path: Path, picture: Image) -> bool:
    """Whether the file has these pixels already: its bytes may differ with the version of WebP."""
    shown = as_pillow(picture)
    mode = "RGBA" if shown.mode == "RGBA" else "RGB"
    if not path.exists():
        return False
    with PillowImage.open(path) as file:
        return file.mode == mode and file.tobytes() == shown.convert(mode).tobytes()


def _parameters(schemas: dict[str, Any]) -> Iterator[str]:
    if not schemas:
        return
    yield "| parameter | takes | unit | default | |"
    yield "|---|---|---|---|---|"
    for name, schema in schemas.items():
        takes, default = allowed(schema), _default(schema)
        unit, text = schema.get("unit", ""), schema.get("description", "")
        yield f"| `{name}` | {takes} | {unit} | {default} | {text} |"
    yield ""


def _default(schema: dict[str, Any]) -> str:
    if "default" not in schema:
        return "needed"
    return "" if schema["default"] is None else f"`{json.dumps(schema['default'])}`"


if __name__ == "__main__":
    write()
