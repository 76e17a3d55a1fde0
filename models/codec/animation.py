"""Read all frames of an animation, and write frames as a GIF, an APNG or an animated WebP.

The frames of an animation stand one below the other in one array, so every limit of pixels, memory
and time counts them as one image. Of each frame the box that differs from the frame before it is
written. The file formats: GIF89a; PNG, third edition, 11.3.2 (APNG); RFC 9649, 2.7.1 (WebP).
"""

import math
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from typing import Any, cast

import numpy as np
from PIL import Image as PillowImage
from PIL.GifImagePlugin import getdata
from PIL.ImageFile import ImageFile

from models.codec.colour import scale_transparency
from models.codec.formats import ANIMATED
from models.codec.metadata import PREFIX
from models.codec.png import chunks
from models.codec.rows import Box, rows_of
from models.codec.stripes import NewPixels, converted, new_pixels
from models.domain.errors import TooManyPixels, Unprocessable
from models.domain.image import Pixels

MOST_FRAMES = 1000
"""Largest number of frames of an animation."""

OPAQUE = 128
"""Least alpha of a pixel that is opaque in a GIF, which has no other alpha."""

_SAMPLE = 1 << 14
"""Pixels of a frame by which the colours of its palette are chosen."""

_LONGEST_GIF, _LONGEST_PNG, _LONGEST_WEBP = 0xFFFF, 0xFFFF, 0xFFFFFF
"""The longest times of a frame: in 1/100 s, in units that the file chooses, and in 1/1000 s."""

_MOST_PLAYS = 0xFFFF
"""Largest number of plays that a WebP or a GIF can state."""


@dataclass(frozen=True, slots=True)
class Animation:
    """The times of all frames, in milliseconds, and how often they are played: 0 is without end."""

    milliseconds: tuple[float, ...]
    plays: int


def count_frames(data: bytes, image: ImageFile, stated: int, max_pixels: int) -> int:
    """Return the number of frames that are played: 1 for a picture that does not move.

    `stated` is the number by the header. Raises Unprocessable for a file whose further pictures
    cannot be read one by one, TooManyPixels, and EOFError for a GIF without its end.
    """
    if image.format not in {each.name for each in ANIMATED}:
        if stated > 1 and image.format in ("AVIF", "TIFF"):  # not of a photo and its previews
            raise Unprocessable(
                f"the file has several pictures, and those of a {image.format} are not filtered "
                "one by one; ask for frames=first, or send a GIF, PNG or WebP"
            )
        return 1
    n = _count_of_gif(data, image) if image.format == "GIF" else cast(Any, image).n_frames
    n -= bool(image.info.get("default_image"))  # of an APNG, which is no frame
    pixels = n * image.width * image.height
    if n > MOST_FRAMES or (n > 1 and pixels > max_pixels):
        raise TooManyPixels(
            f"the animation has {n:,} frames or more with {pixels:,} pixels, and "
            f"{MOST_FRAMES:,} frames and {max_pixels:,} pixels are allowed here; send fewer or "
            "smaller frames, or ask for frames=first"
        )
    return int(n)


def _count_of_gif(data: bytes, image: Any) -> int:
    """Return the frames of a GIF, or one more than is allowed where there are many more.

    Raises EOFError if the file does not end with the mark of its end.

    Pillow counts the frames of a cut file, too, and does not tell where it stopped.
    """
    image._seek(0)  # a look at the second frame of a broken file may have ended anywhere
    with suppress(EOFError):
        while image.tell() < MOST_FRAMES:
            image._seek(image.tell() + 1, update_image=False)
    n = image.tell() + 1
    if n <= MOST_FRAMES and data[image.fp.tell() - 1 : image.fp.tell()] != b";":
        raise EOFError("the GIF is cut")
    image.seek(0)
    return int(n)


def read_frames(
    data: bytes,
    image: ImageFile,
    shape: tuple[int, int, int],
    icc_profile: bytes | None,
    orientation: int,
    new_pixels_: NewPixels,
) -> tuple[Pixels, Animation]:
    """Return the frames of a file as Pillow composes them, upright and in sRGB, and their times.

    `shape` is (frames, height, width). The pixels are uint8 (frames * height, width, 3), or 4 where
    a pixel of a frame is not opaque. Raises errors as Pillow does for a broken or cut file.
    """
    n, height, width = shape
    first, size, milliseconds = cast(Any, image).n_frames - n, image.size, []
    pixels = new_pixels_((n * height, width, 4))
    frames = pixels.reshape(n, height, width, 4)
    for number, frame in enumerate(frames):
        image.seek(first + number)
        if image.size != size:  # of a GIF, whose frames may be larger than its header says
            raise SyntaxError("a frame does not fit into the animation")
        image.load()
        if image.format == "PNG" and not number:
            scale_transparency(image, depth=data[24])
        upright = converted(rows_of(image), icc_profile, orientation, new_pixels)
        frame[..., :3] = upright[..., :3]
        frame[..., 3] = upright[..., 3] if upright.shape[2] == 4 else 255
        milliseconds.append(max(0.0, float(image.info.get("duration") or 0)))
    if all((frame[..., 3] == 255).all() for frame in frames):
        opaque = pixels.reshape(-1)[: 3 * n * height * width].reshape(n, height, width, 3)
        for number, frame in enumerate(frames):  # in place: each goes towards the start
            opaque[number] = frame[..., :3]
        pixels = opaque.reshape(n * height, width, 3)
    loop = image.info.get("loop")
    if image.format == "GIF":  # which counts repetitions
        loop = 1 if loop is None else loop + bool(loop)
    return pixels, Animation(tuple(milliseconds), int(loop or 0))


def write_gif(pixels: Pixels, animation: Animation, copyright_: str | None) -> bytes:
    """Return a GIF of frames, uint8 (frames * height, width, channels).

    A frame of at most 256 colours keeps them, or of 255 if pixels are transparent.
    """
    frames = _frames(pixels, animation)
    height, width, channels = frames.shape[1:]
    clear = channels == 4 and any((frame[..., 3] < OPAQUE).any() for frame in frames)
    file = BytesIO()
    file.write(b"GIF89a" + struct.pack("<HHxxx", width, height))
    if animation.plays != 1:
        repeats = min(max(0, animation.plays - 1), _MOST_PLAYS)
        file.write(b"!\xff\x0bNETSCAPE2.0\x03\x01" + struct.pack("<Hx", repeats))
    if text := (copyright_ or "").encode():
        pieces = [text[at : at + 255] for at in range(0, len(text), 255)]
        file.write(b"!\xfe" + b"".join(bytes([len(each)]) + each for each in pieces) + b"\0")
    times = _times(animation, 100, _LONGEST_GIF)
    # A pixel that becomes transparent must be cleared, so nothing of a frame stays then.
    for time, (box, part) in zip(times, _parts(frames, whole=clear), strict=True):
        picture, hidden = _indexed(part, clear=clear)
        options = {"duration": 10 * time, "disposal": 2 if clear else 1, **hidden}
        place = box.left, box.top
        file.writelines(getdata(picture, place, include_color_table=True, **options))
    file.write(b";")
    return file.getvalue()


def _indexed(pixels: Pixels, *, clear: bool) -> tuple[PillowImage.Image, dict[str, int]]:
    """Return a picture with a palette, and the option that names its transparent colour.

    The picture is exact if the pixels have few enough colours.
    """
    if pixels.shape[2] == 1:
        pixels = np.repeat(pixels, 3, axis=2)
    colours = pixels[..., :3]
    if clear:
        hidden = pixels[..., 3] < OPAQUE
        colours = np.where(hidden[..., np.newaxis], np.uint8(0), colours)
    colours = np.ascontiguousarray(colours)
    picture, most = PillowImage.fromarray(colours), 256 - clear
    if picture.getcolors(most) is not None:
        picture = picture.quantize(most, PillowImage.Quantize.MEDIANCUT)
    else:  # choosing colours from all pixels took twenty times as long
        step = math.ceil(math.sqrt(picture.width * picture.height / _SAMPLE))
        sample = PillowImage.fromarray(np.ascontiguousarray(colours[::step, ::step]))
        chosen = sample.quantize(most, PillowImage.Quantize.MEDIANCUT)
        picture = picture.quantize(palette=chosen, dither=PillowImage.Dither.NONE)
    if not clear:
        return picture, {}
    palette = picture.getpalette() or []
    index = len(palette) // 3
    picture = PillowImage.fromarray(np.where(hidden, np.uint8(index), np.asarray(picture)))
    picture.putpalette([*palette, 0, 0, 0])
    return picture, {"transparency": index}


def write_apng(
    pixels: Pixels, animation: Animation, encode: Callable[[Pixels], bytes], exif: bytes
) -> bytes:
    """Return an APNG of frames as above; `encode` makes a PNG, all of the same kind of pixels."""
    frames, sequence, file = _frames(pixels, animation), 0, BytesIO()
    per_second = 1000 if max(animation.milliseconds) <= _LONGEST_PNG else 100
    times = _times(animation, per_second, _LONGEST_PNG)
    for number, (time, (box, part)) in enumerate(zip(times, _parts(frames), strict=True)):
        made = encode(part)
        if not number:
            _, _, end = next(chunks(made))
            file.write(made[: end + 4])
            file.write(_png_chunk(b"acTL", struct.pack(">II", len(frames), animation.plays)))
            if exif:
                file.write(_png_chunk(b"eXIf", exif.removeprefix(PREFIX)))
        place = box.right - box.left, box.bottom - box.top, box.left, box.top
        control = struct.pack(">IIIIIHHBB", sequence, *place, time, per_second, 0, 0)
        file.write(_png_chunk(b"fcTL", control))
        sequence += 1
        for name, start, end in chunks(made):
            if name != b"IDAT":
                continue
            if not number:
                file.write(made[start - 8 : end + 4])
                continue
            file.write(_png_chunk(b"fdAT", sequence.to_bytes(4, "big") + made[start:end]))
            sequence += 1
    file.write(_png_chunk(b"IEND", b""))
    return file.getvalue()


def _png_chunk(name: bytes, content: bytes) -> bytes:
    checksum = zlib.crc32(name + content).to_bytes(4, "big")
    return len(content).to_bytes(4, "big") + name + content + checksum


def write_webp(
    pixels: Pixels, animation: Animation, encode: Callable[[Pixels], bytes], exif: bytes
) -> bytes:
    """Return an animated WebP of frames as above; `encode` makes a WebP of a frame."""
    frames, file = _frames(pixels, animation), BytesIO()
    height, width, channels = frames.shape[1:]
    flags = 0x02 | (0x08 if exif else 0) | (0x10 if channels == 4 else 0)
    size = _three(width - 1) + _three(height - 1)
    file.write(b"RIFF\0\0\0\0WEBP" + _riff_chunk(b"VP8X", bytes([flags, 0, 0, 0]) + size))
    file.write(_riff_chunk(b"ANIM", struct.pack("<IH", 0, min(animation.plays, _MOST_PLAYS))))
    times = _times(animation, 1000, _LONGEST_WEBP)
    for time, (box, part) in zip(times, _parts(frames, step=2), strict=True):
        place = (box.left // 2, box.top // 2, box.right - box.left - 1, box.bottom - box.top - 1)
        head = b"".join(map(_three, (*place, time))) + b"\x02"  # replaces pixels, also by alpha
        file.write(_riff_chunk(b"ANMF", head + _webp_pixels(encode(part))))
    if exif:
        file.write(_riff_chunk(b"EXIF", exif.removeprefix(PREFIX)))
    length = file.tell() - 8
    file.seek(4)
    file.write(length.to_bytes(4, "little"))
    return file.getvalue()


def _webp_pixels(made: bytes) -> bytes:
    """Return the chunks of a WebP that have its pixels."""
    found, at = [], 12
    while at < len(made):
        end = at + 8 + int.from_bytes(made[at + 4 : at + 8], "little")
        end += end % 2
        if made[at : at + 4] in (b"ALPH", b"VP8 ", b"VP8L"):
            found.append(made[at:end])
        at = end
    return b"".join(found)


def _riff_chunk(name: bytes, content: bytes) -> bytes:
    return name + len(content).to_bytes(4, "little") + content + bytes(len(content) % 2)


def _three(number: int) -> bytes:
    return int(number).to_bytes(3, "little")


def _frames(pixels: Pixels, animation: Animation) -> Pixels:
    """Return uint8 (frames, height, width, channels)."""
    return pixels.reshape(len(animation.milliseconds), -1, *pixels.shape[1:])


def _parts(frames: Pixels, *, whole: bool = False, step: int = 1) -> Iterator[tuple[Box, Pixels]]:
    """Yield the box of each frame outside of which it equals the frame before it, and its pixels.

    `whole`: all frames as they are. The left and the top of a box are multiples of `step`.
    """
    height, width = frames.shape[1:3]
    for number, frame in enumerate(frames):
        box = Box(0, 0, width, height)
        if number and not whole:
            differs = (frame != frames[number - 1]).any(axis=2)
            top, bottom = _span(differs.any(axis=1), step)
            left, right = _span(differs.any(axis=0), step)
            box = Box(left, top, right, bottom)
        yield box, np.ascontiguousarray(frame[box.top : box.bottom, box.left : box.right])


def _span(differs: np.typing.NDArray[np.bool_], step: int) -> tuple[int, int]:
    places = np.flatnonzero(differs)
    return (int(places[0]) // step * step, int(places[-1]) + 1) if len(places) else (0, 1)


def _times(animation: Animation, per_second: int, most: int) -> Sequence[int]:
    """Return the times in whole units; the ends of frames are rounded, so that no error grows."""
    ends = np.rint(np.cumsum((0.0, *animation.milliseconds)) * per_second / 1000)
    return [min(most, int(each)) for each in np.diff(ends)]
