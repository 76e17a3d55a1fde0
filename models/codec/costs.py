"""Estimate the costs of decoding and encoding before they begin: memory, CPU seconds, and pixels.

Memory is in bytes per pixel, measured (`tests/bench/results/memory.md`) and rounded up. The
figures hold for large images; the tables of a codec and the stripe that is converted come to 10 to
20 MB more for every image.
"""

from collections.abc import Mapping
from dataclasses import replace

from models.codec import avif_grid
from models.codec.encoder import MAX_SIDE, PLAIN, Encoding
from models.codec.formats import ANIMATED, ENCODABLE, ImageFormat, identify
from models.codec.jpeg import first_frame
from models.codec.probe import ImageInfo, stated_size
from models.domain.errors import TooManyPixels, Unprocessable

_PLAIN_MODES = frozenset(("1", "L", "RGB", "I;16", "I;16B", "I;16L"))

_DECODED = {
    ImageFormat.JPEG: (6.2, 9.0),
    ImageFormat.PNG: (7.7, 9.2),
    ImageFormat.WEBP: (12.1, 12.1),
    ImageFormat.GIF: (6.0, 6.0),
    ImageFormat.BMP: (7.5, 9.0),
    ImageFormat.TIFF: (7.5, 9.0),
    ImageFormat.AVIF: (9.5, 9.5),
    ImageFormat.HEIF: (9.5, 13.0),
}
"""For grey and RGB, and for every other mode: palettes, alpha, CMYK and floats."""

_LOADED = 4
"""Bytes per pixel of Pillow's picture, beside which the rows of a PNG and the strips or tiles of a
TIFF are unpacked. A TIFF with an orientation is turned into a second one before they are freed."""

_ROW = 8
"""Bytes of a row of Pillow's picture beside its pixels, which are the place of the row."""

_NARROW = 16
"""Pixels of a row that make up for that: the figures hold for rows of as many. One column took 15
bytes per pixel."""

_LOADED_AVIF = 2
"""Bytes per sample that Pillow takes for an AVIF beside its planes: it has the pixels twice."""

_DECODER_OF_AVIF = 1
"""Bytes per pixel of the tables of dav1d, which knows all blocks of a frame; 0.5 to 0.7 were
measured."""

_PLAIN_JPEG = 3
"""Bytes per pixel of a certain baseline JPEG, which is decoded into the pixels at once; one with an
orientation is decoded into another array, and turned into the pixels."""

_PIXELS_OF_JPEG = 3.4
"""Bytes per pixel of the pixels of a JPEG of several scans, beside its coefficients."""

_COMPOSED = 26
"""Bytes per pixel of a frame with which Pillow composes the next frame of an animation."""

_CANVASES = 9
"""Bytes per pixel of the two pictures in RGBA that libwebp allocates when it opens a file."""


def open_memory(data: bytes) -> int:
    """Return the bytes that opening a file allocates for its pixels, before any is decoded."""
    return _CANVASES * (claimed_pixels(data) or 0) if identify(data) is ImageFormat.WEBP else 0


def decode_memory(
    info: ImageInfo,
    size: int,
    *,
    plain_jpeg: bool = False,
    coefficients: float = 0.0,
    buffers: int = 0,
) -> int:
    """Estimate the bytes that decoding a file of `size` bytes takes at most, its pixels included.

    `plain_jpeg`: `open_plain` opens the file. `coefficients`: the bytes per pixel that a JPEG of
    several scans keeps until its last scan, 3 in 4:2:0 and 6 in 4:4:4. `buffers`: the bytes of the
    rows of a PNG, of the strip or tile of a TIFF, or of the planes of an AVIF, which are unpacked
    at a time.
    """
    if plain_jpeg:
        return size + info.n_pixels * _PLAIN_JPEG * (1 if info.orientation == 1 else 2)
    plain, other = _DECODED[info.format]
    per_pixel = plain if info.mode in _PLAIN_MODES and not info.transparent else other
    if coefficients:
        per_pixel = max(per_pixel, coefficients + _PIXELS_OF_JPEG)
    files = 2 if info.format is ImageFormat.WEBP else 1  # libwebp's decoder copies the file
    if info.stack > 1:
        return files * size + info.n_pixels * 4 + _COMPOSED * info.n_pixels // info.stack
    loaded = 2 * _LOADED if info.format is ImageFormat.TIFF and info.orientation != 1 else _LOADED
    if info.format is ImageFormat.AVIF:
        loaded = _LOADED_AVIF * info.most_channels + _DECODER_OF_AVIF
    needed = max(int(info.n_pixels * per_pixel), info.n_pixels * loaded + buffers)
    rows = info.height + info.width  # Pillow turns a TIFF into a second picture
    return files * size + needed + _ROW * max(0, rows - info.n_pixels // _NARROW)


def check_decode_memory(info: ImageInfo, needed: int, most: int) -> None:
    """Raise TooManyPixels for an image whose decoding needs more than `most` bytes by estimate."""
    if needed > most:
        raise TooManyPixels(
            f"decoding this {info.format.name} of {info.width} × {info.height} pixels takes about "
            f"{needed >> 20:,} MiB of memory, more than the {most >> 20:,} allowed; "
            "send it smaller, or as a baseline JPEG"
        )


# Pixels by the first bytes of a file, in microseconds; none of a TIFF, an AVIF or a HEIF. The
# guess orders waiting work. A file that lies is refused when it is decoded, and every loop has a
# stated bound.

START = 1 << 16
"""Bytes of a file that are looked at."""


def claimed_pixels(start: bytes) -> int | None:
    """Return width times height by the first bytes of a file, None if they do not show it."""
    format_ = identify(start)
    if format_ in (None, ImageFormat.AVIF, ImageFormat.HEIF):
        return None
    if format_ is ImageFormat.JPEG:
        frame = first_frame(start)
        return None if frame is None else frame[1]
    width, height = stated_size(start, format_)
    return width * height or None


_FRAMES = {ImageFormat.GIF: b"!\xf9\x04", ImageFormat.PNG: b"fcTL", ImageFormat.WEBP: b"ANMF"}
"""The bytes with which a frame of an animation begins."""


def claimed_frames(start: bytes, size: int) -> int:
    """Estimate the frames of a file of `size` bytes by its first bytes; at least 1."""
    mark = _FRAMES.get(identify(start) or ImageFormat.JPEG)
    return max(1, start.count(mark) * size // len(start)) if mark else 1


# CPU seconds of encoding by pixels, format and options, measured for a megapixel of photos on a
# core of 2.x GHz: PNG 1.2 s at level 9, 0.25 s at 6, 0.057 s at 0; WebP 0.05 s; progressive JPEG
# 0.02 s; baseline JPEG 0.003 s. AVIF takes 53 s at speed 0, 5.2 s at 4, 0.7 s at 6, 0.08 s from 9
# for photos that were made smaller and have more detail in a pixel; photos as they were taken
# need 0.7 to 0.85 of that, and noise 1.5 to 2 times as long.

_AVIF_SECONDS = [each * 1e-6 for each in (53, 20, 16, 10, 5.2, 4, 0.7, 0.4, 0.3, 0.08, 0.08)]
_PNG_SECONDS = [each * 1e-6 for each in (0.057, 0.07, 0.08, 0.1, 0.12, 0.18, 0.25, 0.35, 0.8, 1.2)]
_GIF_SECONDS = 0.2e-6
_WEBP_SECONDS, _PROGRESSIVE_SECONDS, _BASELINE_SECONDS = 0.05e-6, 0.02e-6, 0.003e-6
_USUAL_SPEED, _USUAL_LEVEL = 9, 1

MOST_TRIES = 8
"""Files that are made to find the quality for `max_bytes`."""


def encode_cost(pixels: int, format: ImageFormat, encoding: Encoding) -> float:
    """Estimate the CPU seconds that encoding an image of this number of pixels takes."""
    pixels *= 1 if encoding.max_bytes is None else MOST_TRIES
    if format is ImageFormat.AVIF:
        speed = encoding.avif_speed
        return pixels * _AVIF_SECONDS[_USUAL_SPEED if speed is None else speed]
    if format is ImageFormat.PNG:
        level = encoding.png_level
        return pixels * _PNG_SECONDS[_USUAL_LEVEL if level is None else level]
    if format is ImageFormat.WEBP:
        return pixels * _WEBP_SECONDS
    if format is ImageFormat.GIF:
        return pixels * _GIF_SECONDS
    return pixels * (_PROGRESSIVE_SECONDS if encoding.progressive else _BASELINE_SECONDS)


def check_encode_cost(pixels: int, format: ImageFormat, encoding: Encoding, most: float) -> float:
    """Return the estimate in CPU seconds; raise Unprocessable if it is over `most` seconds."""
    cost = encode_cost(pixels, format, encoding)
    if cost > most:
        faster = {
            ImageFormat.AVIF: "a higher avif_speed",
            ImageFormat.PNG: "a lower png_level",
        }.get(format, "another format")
        raise Unprocessable(
            f"encoding {pixels:,} pixels as asked takes about {cost:,.0f} s of CPU time, more than "
            f"the {most:g} allowed; ask for {faster} or a smaller image"
        )
    return cost


# Memory of encoding: the pixels, Pillow's picture of 4 bytes per pixel, the buffers of the codec,
# and the file. Files are counted as large as files of noise, into which a filter turns any photo.

Shape = tuple[int, int, int]
"""Height, width and channels of an image."""

_PICTURE = 4
"""Bytes per pixel of the picture in colour that Pillow encodes; the pixels are freed meanwhile."""

_FILES: Mapping[ImageFormat, Mapping[int, Mapping[str, float]]] = {
    ImageFormat.JPEG: {
        90: {"420": 1.15, "422": 1.5, "444": 2.3},
        95: {"420": 1.45, "422": 1.9, "444": 2.9},
        100: {"420": 2.35, "422": 3.1, "444": 4.72},
    },
    ImageFormat.WEBP: {90: {"420": 1.0}, 98: {"420": 1.22}, 100: {"420": 3.2}},
    ImageFormat.AVIF: {
        75: {"420": 0.95, "444": 1.6, "plane": 0.6},
        100: {"420": 2.1, "444": 4.4, "plane": 1.5},
    },
}
"""Bytes per pixel of a file of noise by the highest quality and the chroma; `plane`: those of alpha
or of grey. Files count twice, because the buffer in which an encoder writes is copied at its end,
and the allocator keeps the memory of the cells of an AVIF that were copied into the file."""

_COEFFICIENTS = {"420": 3, "422": 4, "444": 6}
"""Bytes per pixel of the coefficients of a progressive JPEG, which are kept until its last scan."""

_ROWS_OF_PNG = 6
"""Rows of a PNG in the memory of its encoder: one before it, and one for each way to filter it."""

_WEBP = 10
"""Bytes per pixel of an opaque WebP beside its file: Pillow's picture, and libwebp's planes and
tokens."""

_LOSSLESS_WEBP, _WEBP_WITH_ALPHA = 29, 41.5
"""Bytes per pixel of the WebPs that libwebp takes more for; it compresses alpha without loss."""

_GIF, _FILE_OF_GIF = 15, 1.6
"""Bytes per pixel with which the colours of a GIF are chosen, and of a GIF of noise."""

_CELL_OF_AVIF = 43
"""Bytes per pixel of the cell of an AVIF grid that is encoded: what 4:4:4 takes, and its pixels
twice. Beside it stand the pixels of the image, and the file."""


def encode_memory(shape: Shape, format: ImageFormat, encoding: Encoding, *, frames: int = 1) -> int:
    """Estimate the bytes that encoding takes at most, with the pixels and the file.

    `frames` of this shape are encoded one after the other; the others and the file stand beside.
    """
    height, width, channels = shape
    pixels = height * width
    if encoding.max_bytes is not None:  # the pixels and the best file so far stay meanwhile
        once = replace(encoding, max_bytes=None)
        return encode_memory(shape, format, once, frames=frames) + 2 * frames * pixels * channels
    if frames > 1:
        file = _FILE_OF_GIF if format is ImageFormat.GIF else channels + 1
        return encode_memory(shape, format, encoding) + int(frames * pixels * (channels + file))
    grey, chroma = channels == 1, encoding.subsampling
    match format:
        case ImageFormat.AVIF if pixels > avif_grid.WHOLE:
            halved = chroma == "420" and not avif_grid.needs_full_chroma(height, width)
            plane = _file(format, encoding, "plane")
            colours = _file(format, encoding, "420" if halved else "444")
            file = plane if grey else colours + plane * (channels == 4)
            return int(pixels * (channels + 2 * file)) + avif_grid.CELL * _CELL_OF_AVIF
        case ImageFormat.AVIF:
            beside = (22 if chroma == "420" else 34) + (2 if channels == 4 else 0)
            return pixels * (channels + beside)
        case ImageFormat.WEBP if encoding.lossless or channels == 4:
            return int(pixels * (_LOSSLESS_WEBP if encoding.lossless else _WEBP_WITH_ALPHA))
        case ImageFormat.WEBP:
            return int(pixels * (_WEBP + 2 * _file(format, encoding, "420")))
        case ImageFormat.PNG:
            picture = 1 if grey else _PICTURE
            return pixels * (picture + channels + 1) + _ROWS_OF_PNG * width * channels
        case ImageFormat.GIF:
            return int(pixels * (channels + _GIF + _FILE_OF_GIF))
    stored, beside = (1, 3) if grey else (3, _PICTURE + _COEFFICIENTS[chroma])
    if not encoding.progressive:
        beside = int(channels == 4)  # which is laid on white
    return int(pixels * (stored + beside + 2 * _file(format, encoding, "420" if grey else chroma)))


def _file(format: ImageFormat, encoding: Encoding, part: str) -> float:
    """Return the bytes per pixel of a part of a file, by the lowest quality not below its own."""
    quality = encoding.quality_for(format)
    return next(files[part] for most, files in _FILES[format].items() if quality <= most)


def check_encode_memory(
    shape: Shape,
    format: ImageFormat,
    encoding: Encoding,
    most: int,
    *,
    beside: int = 0,
    frames: int = 1,
) -> None:
    """Raise Unprocessable for an encoding that needs more than `most` bytes by estimate.

    `beside`: bytes of pixels that stay in memory meanwhile, because further answers need them.
    """
    needed = encode_memory(shape, format, encoding, frames=frames) + beside
    if needed > most:
        images = "" if frames == 1 else f"{frames} frames of "
        kind = "lossless " if encoding.lossless else "progressive " if encoding.progressive else ""
        alpha = " with alpha" if shape[2] == 4 else ""
        kept = f", {beside >> 20:,} of them for other answers to this image" if beside else ""
        raise Unprocessable(
            f"encoding {images}{shape[1]} × {shape[0]} pixels as "
            f"{kind}{format.name}{alpha} takes about {needed >> 20:,} MiB of "
            f"memory{kept}, more than the {most >> 20:,} allowed; "
            f"{_instead(shape, most - beside, frames)}"
        )


def _instead(shape: Shape, most: int, frames: int) -> str:
    """Return advice: the formats that are allowed for these pixels, or fewer pixels."""
    fitting = [
        each
        for each in (ENCODABLE if frames == 1 else ANIMATED)
        if max(shape[:2]) <= MAX_SIDE[each]
        and encode_memory(shape, each, PLAIN, frames=frames) <= most
    ]
    others = f"{' or '.join(fitting)} without further options, or for " if fitting else ""
    return f"ask for {others}fewer pixels"
