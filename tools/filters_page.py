"""Write docs/filters.md and its pictures from the registry: `make docs`.

A test compares the page with the output of this program, so the page is always up to date.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from PIL import Image as PillowImage

from app.responses.thumbnails import as_pillow, example, scene
from models.domain.image import Image
from workers.filters.registry import FILTERS, allowed, describe

PAGE = Path(__file__).parents[1] / "docs/filters.md"
PICTURES = PAGE.with_suffix("")
BEFORE = "before"
"""Name of the picture that all filters are applied to."""

ALPHA = {
    "premul": "filtered, weights colours",
    "plane": "filtered as one more plane",
    "keep": "",  # the head of the page says that alpha is kept
    "drop": "dropped",
    "shape": "changes, colours are kept",
    "over": "united with the alpha of the picture",
}
RESULT = {
    "colour": "RGB, for grey images too",
    "alpha": "RGB with alpha",
    "no alpha": "no alpha",
    "turned": "width and height may be swapped",
    "resized": "",  # the description of the filter says so
}

WITHOUT = ("", "ratio", "count", "order", "time", "tile", "quarter turn")
"""Units that say nothing beyond the parameter's description."""

HEAD = """# Filters

`make docs` generates this page from the filters; do not edit it. A running server returns the same
([api.md](api.md#catalogue)).

A request names one filter, `POST /filter?name=gaussian_blur&sigma=2`, or a chain of them as `ops`.
A parameter that is left out has its default; the error for a wrong one states what is allowed.
A server filters images of 8 bits a channel: grey, RGB, RGB with alpha. A chain runs on a GPU if
there is one.

Unless the section of a filter says something else, the result has the size and the channels of the
image, alpha is kept and has no influence on colours, and pixels are exactly those of the reference
in the tests. A tolerance is the largest distance from them. Where alpha weights colours, the colour
of a pixel counts by its opacity. A number without the word "whole" may be a fraction. All pictures
are made of this image:

![before](filters/before.webp)

The last line of a section is an example for `ops`, where `[{{"name": "NAME"}}]` is not enough:

```sh
{curl} -F 'ops=[{{"name": "grayscale"}}]'
```
"""

USUAL = {"Alpha": "point", "Result": "same", "Tolerance": "exact"}

CURL = "curl localhost:8000/filter -F files=@photo.jpg -o filtered.jpg"


def page() -> str:
    """Return the whole page as Markdown."""
    return "\n".join([HEAD.format(curl=CURL), *map(section, FILTERS)])


def section(name: str) -> str:
    """Return the section of one filter: description, pictures, parameters, rules, a request."""
    described = describe(FILTERS[name])
    request = described["example"]
    rules = {
        "Alpha": _unusual("Alpha", described["alpha"], ALPHA),
        "Border": described["border"],
        "Result": _unusual("Result", described["result_shape"], RESULT),
        "Tolerance": _unusual("Tolerance", described["tolerance"], {}),
    }
    told = " · ".join(f"{rule}: {text}" for rule, text in rules.items() if text)
    return "\n".join(
        [
            f"## {name}",
            "",
            described["description"],
            "",
            f"![{name}](filters/{name}.webp)",
            "",
            *_parameters(described["parameters"]),
            *([told, ""] if told else []),
            *([f"`{json.dumps([request])}`", ""] if len(request) > 1 else []),
        ]
    )


def _unusual(rule: str, value: str, texts: dict[str, str]) -> str:
    """Return the text of a rule, or an empty one if the head of the page says the same."""
    return "" if value == USUAL[rule] else texts.get(value, value)


def write() -> None:
    """Write the page and its pictures; remove the pictures of filters that no longer exist."""
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
    """Return whether the file has these pixels; its bytes may differ with the version of WebP."""
    shown = as_pillow(picture)
    mode = "RGBA" if shown.mode == "RGBA" else "RGB"
    if not path.exists():
        return False
    with PillowImage.open(path) as file:
        return file.mode == mode and file.tobytes() == shown.convert(mode).tobytes()


def _parameters(schemas: dict[str, Any]) -> Iterator[str]:
    if not schemas:
        return
    yield "| parameter | takes | default | |"
    yield "|---|---|---|---|"
    for name, schema in schemas.items():
        unit, text = schema.get("unit", ""), schema.get("description", "")
        takes = re.sub(r"^an? (odd )?(whole )?number from ", r"\1\2", allowed(schema))
        takes, *above = takes.rstrip(",").removesuffix(f" {unit}").split(", above ")
        takes += f" {unit}" * (unit not in WITHOUT) + "".join(f", above `{name}`" for name in above)
        yield f"| `{name}` | {takes} | {_default(schema)} | {text} |"
    yield ""


def _default(schema: dict[str, Any]) -> str:
    if "default" not in schema:
        return "needed"
    return "" if schema["default"] is None else f"`{json.dumps(schema['default'])}`"


if __name__ == "__main__":
    write()
