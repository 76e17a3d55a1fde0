"""Options of encoding, and the formats that have them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from models.codec.formats import ENCODABLE, ImageFormat
from models.domain.errors import FieldError, InvalidParameter

Chroma = Literal["420", "422", "444"]
"""Chroma halved in both directions, in width alone, or in full."""

_DEFAULT_QUALITY: Mapping[ImageFormat, int] = {
    ImageFormat.JPEG: 90,
    ImageFormat.WEBP: 80,
    ImageFormat.AVIF: 75,
}

_DEFAULT_CHROMA: Chroma = "420"

OPTIONS_OF: Mapping[str, tuple[ImageFormat, ...]] = {
    "progressive": (ImageFormat.JPEG,),
    "chroma": (ImageFormat.JPEG, ImageFormat.AVIF),
    "lossless": (ImageFormat.WEBP,),
    "png_level": (ImageFormat.PNG,),
    "avif_speed": (ImageFormat.AVIF,),
    "encoder": (ImageFormat.JPEG,),
}
"""The options that only some formats have."""

_RANGES = {"quality": (1, 100), "png_level": (0, 9), "avif_speed": (0, 10)}


@dataclass(frozen=True, slots=True)
class Encoding:
    """The options of an encoder; None leaves a value to `models.codec.encoding.encoder`.

    `quality` (1…100) has no effect on lossless files: PNG, and WebP that is `lossless`. `png_level`
    is zlib's, 0 (stored) to 9 (smallest); `avif_speed` 0 (smallest) to 10 (fastest). `metadata`
    states whether the source's EXIF is kept, as far as it is still true. `encoder` is the device
    that the request asks for; `models.codec.encoding.encoder` encodes on the CPU.
    """

    quality: int | None = None
    progressive: bool = False
    chroma: Chroma | None = None
    lossless: bool = False
    png_level: int | None = None
    avif_speed: int | None = None
    metadata: Literal["strip", "keep"] = "strip"
    encoder: Literal["cpu", "gpu"] = "cpu"

    def quality_for(self, format: ImageFormat) -> int:
        """Return the quality, by default that of `format`, which is JPEG, WebP or AVIF."""
        return self.quality or _DEFAULT_QUALITY[format]

    @property
    def subsampling(self) -> Chroma:
        """Return the chroma subsampling, by default 4:2:0."""
        return self.chroma or _DEFAULT_CHROMA

    def check(self, format: ImageFormat) -> None:
        """Raise InvalidParameter with the path of every option that `format`, or any format, does
        not have.
        """
        errors = []
        if format not in ENCODABLE:
            problem = f"{format} is read but not written; ask for one of {', '.join(ENCODABLE)}"
            errors.append(FieldError("format", problem, str(format)))
        for name, (low, high) in _RANGES.items():
            given = getattr(self, name)
            if given is not None and not low <= given <= high:
                problem = f"{name} is {low} to {high}, not {given}"
                errors.append(FieldError(name, problem, given))
        for name, formats in OPTIONS_OF.items():
            given = getattr(self, name)
            if format not in formats and given != getattr(PLAIN, name):
                errors.append(FieldError(name, _of_another(name, formats, format), given))
        if self.progressive and self.encoder == "gpu":
            errors.append(FieldError("encoder", "GPUs make baseline JPEGs alone", self.encoder))
        if errors:
            raise InvalidParameter(f"{errors[0].path}: {errors[0].message}", errors)


PLAIN = Encoding()
"""No options."""


def _of_another(_name: str, formats: tuple[ImageFormat, ...], chosen: ImageFormat) -> str:
    having = " and ".join(each.name for each in formats)
    return f"an option of {having}, and the answer is to be {chosen.name}; give a format or omit it"
