"""Single images of 24 megapixels, one after the other, each with what takes the most memory.

Old effect: single requests that were accepted took up to 0.8 GB over the idle server: a PNG of one
row, WebPs with alpha or without loss, `clahe`, `vignette` and `noise` with alpha. Promise: whatever
is accepted takes at most 300 MB, and what would take more is refused with 422.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from urllib.parse import quote

from tests.chaos.harness.attack import Finding, Steps, Target
from tests.chaos.harness.http import ask, post
from tests.chaos.hostile import others, png

WIDTH, HEIGHT = 6000, 4000

_DEADLINE = "X-Deadline-Ms: 120000\r\n"
_PATIENCE = 130.0


@dataclass(frozen=True, slots=True)
class _Case:
    """A request with one of the files, and whether it is accepted."""

    path: str
    file: str
    accepted: bool = True


_NOISE = "/filter?name=noise&amount=100&format="

_FORMATS = (
    *("jpeg", "jpeg&quality=100&chroma=444", "jpeg&progressive=true", "png", "webp", "avif"),
    "avif&quality=100",
)
_REFUSED_FORMATS = (
    *("jpeg&progressive=true&quality=100&chroma=444", "avif&quality=100&chroma=444"),
    *("webp&quality=100", "webp&lossless=true"),
)
_FILTERS = (
    *("clahe", "vignette", "noise", "pixelate&size=1000", "equalize", "otsu", "flip", "rotate90"),
    *("box_blur&radius=50", "gaussian_blur&sigma=20", "sobel", "median"),
)


def _cases() -> Iterator[_Case]:
    for each in _FORMATS:
        yield _Case(_NOISE + each, "colour")
    for each in _REFUSED_FORMATS:
        yield _Case(_NOISE + each, "colour", accepted=False)
    for each in ("jpeg", "png", "avif"):
        yield _Case(_NOISE + each, "alpha")
    for each in ("webp", "webp&lossless=true", "avif&quality=100"):
        yield _Case(_NOISE + each, "alpha", accepted=False)
    for each in _FILTERS:
        yield _Case(f"/filter?name={each}&format=jpeg", "alpha")
    yield _Case("/filter?name=canny&format=jpeg", "colour")
    yield _Case("/filter?name=canny&format=jpeg", "alpha", accepted=False)
    for file in ("colour", "alpha", "webp", "row"):
        yield _Case("/classify", file)
        yield _Case("/info?colour=true", file)
    yield _Case("/filter?name=invert&format=jpeg", "webp")
    yield from _chains()
    yield from _rows()


def _chains() -> Iterator[_Case]:
    chain = [{"name": name} for name in ("noise", "clahe", "flip", "vignette")]
    yield _Case(f"/filter?ops={quote(json.dumps(chain))}&format=png", "alpha")
    large = [{"name": "resize", "width": 8000, "height": 6000, "fit": "fill"}, *chain]
    yield _Case(f"/filter?ops={quote(json.dumps(large))}&format=png", "alpha", accepted=False)
    versions = [{"id": str(n), "ops": chain[n : n + 2], "format": "jpeg"} for n in range(3)]
    yield _Case(f"/process?labels=true&versions={quote(json.dumps(versions))}", "colour")


def _rows() -> Iterator[_Case]:
    for each in ("invert", "median", "equalize"):
        yield _Case(f"/filter?name={each}&format=png", "short_row")
        yield _Case(f"/filter?name={each}&format=png", "lines")
        yield _Case(f"/filter?name={each}&format=png", "row", accepted=False)
    yield _Case("/filter?name=invert&format=png", "transparent_row", accepted=False)
    yield _Case("/filter?name=vignette&format=png", "short_row", accepted=False)


def large_answers(target: Target) -> Steps:
    """Ask for the dearest answers to single images of 24 megapixels, one after the other."""
    files = {
        "colour": others.flat("JPEG", WIDTH, HEIGHT),
        "alpha": png.noisy_palette(WIDTH, HEIGHT),
        "webp": others.flat("WEBP", 5400, HEIGHT),  # the largest that is decoded
        "row": png.noisy_palette(WIDTH * HEIGHT, 1),
        "short_row": png.noisy_palette(8_000_000, 1),
        "lines": png.noisy_palette(240_000, 100),
        "transparent_row": png.transparent_row(35_000_000),
    }
    yield None
    wrong = []
    for case in _cases():
        request = post(case.path, files[case.file], "application/octet-stream", _DEADLINE)
        outcome = ask(target, request, _PATIENCE)
        if outcome.status != (200 if case.accepted else 422):
            wrong.append(f"{case.path} {case.file}: {outcome.status} {outcome.excerpt}")
        yield outcome if outcome.status != 200 else replace(outcome, excerpt="")
    yield Finding("other_answers_than_expected", len(wrong), most=0)
