"""Files that are cheap to send and dear to decode, beside 15 good clients.

Old effect: codec threads were held for up to 100 s by one file and could not be ended, so that all
15 neighbours got 504; some files took over a gigabyte. Promise: neighbours are spared, and the
file is refused, or its decoding ended, within the request's deadline.
"""

from collections.abc import Callable
from functools import partial

from tests.chaos.harness.attack import Steps, Target
from tests.chaos.harness.http import ask_all, post
from tests.chaos.hostile import jpeg, more_images, others, png, tiff

LASTING = 5.0
"""Seconds during which a refused attacker tries again."""

Build = Callable[[], bytes]

FILES: dict[str, tuple[str, int, Build]] = {
    "progressive_jpegs": ("Four progressive JPEGs of 7000 x 7000, 90 scans", 4, jpeg.progressive),
    "progressive_bands": (
        "Four progressive JPEGs of 90 bands",
        4,
        lambda: jpeg.progressive(refining=False),
    ),
    "progressive_small": (
        "Sixteen progressive JPEGs of 3000 x 3000, 99 scans",
        16,
        lambda: jpeg.progressive(3000, 99),
    ),
    "progressive_restarts": (
        "Two progressive JPEGs of 15 million restart markers",
        2,
        lambda: jpeg.in_first_scan(b"\xff\xd0" * 15_500_000),
    ),
    "jpeg_segments": ("JPEG of 8 million empty segments", 2, jpeg.many_segments),
    "jpeg_app_segments": (
        "JPEG of 8 million empty APP9 segments",
        2,
        lambda: jpeg.many_segments(marker=0xE9),
    ),
    "jpeg_fill": ("JPEG with 32 MB of fill bytes", 2, jpeg.fill_bytes),
    "jpeg_fill_behind": (
        "JPEG with 32 MB of fill bytes before its end",
        2,
        lambda: jpeg.fill_bytes(behind=True),
    ),
    "jpeg_restarts": ("JPEG with 15 million restart markers", 2, jpeg.many_restarts),
    "jpeg_tables": ("JPEG with 450,000 quantization tables", 2, jpeg.many_tables),
    "png_empty_chunks": ("Two PNGs of 32 MB of empty IDAT chunks", 2, png.empty_chunks),
    "png_chunks": ("PNG of a million chunks of text", 2, png.many_chunks),
    "png_unknown_chunks": (
        "PNG of 2.6 million unknown chunks",
        2,
        lambda: png.many_chunks(2_600_000, b"juNk", b""),
    ),
    "png_tiny_idat": ("PNG with its pixels in chunks of one byte", 4, png.one_byte_chunks),
    "png_text_bomb": ("PNG whose texts are 400 MB when opened", 4, png.text_bomb),
    "png_dear_texts": (
        "Two PNGs of 30 MB with 60 packed texts of four bytes a character",
        2,
        png.dear_texts,
    ),
    "png_long_text": ("PNG with a text of 31 MB", 4, png.long_text),
    "png_profile_bomb": ("PNG whose colour profile is 500 MB when opened", 4, png.profile_bomb),
    "png_exif_rationals": ("PNG whose orientation is 3.9 million numbers", 2, png.exif_rationals),
    "png_frames": ("Animated PNG of 300,000 frames", 4, png.many_frames),
    "tiff_huge_tile": ("TIFF of 64 x 64 with a tile of 20000 x 20000", 2, tiff.huge_tile),
    "tiff_tile_beyond": (
        "Two TIFFs of 7000 x 7000 with a tile of four times their pixels",
        2,
        lambda: tiff.large_tile(7000, 14_000),
    ),
    "tiff_huge_strip": ("TIFF of 64 x 64 with a strip of 1 GB", 2, tiff.huge_strip),
    "tiff_strips": ("TIFF of 700,000 strips", 2, tiff.many_strips),
    "tiff_packed_strips": (
        "TIFF of 700,000 packed strips",
        2,
        lambda: tiff.many_strips(700_000, 70, 8),
    ),
    "tiff_stepped_strips": (
        "TIFF of 60 kB whose 6,400 strips begin one byte after the other",
        4,
        tiff.stepped_strips,
    ),
    "tiff_tiles": ("TIFF of 190,000 tiles", 4, tiff.many_tiles),
    "tiff_rationals": ("TIFF whose orientation is 3.9 million numbers", 2, tiff.many_rationals),
    "tiff_endless": ("TIFF whose directories have no end", 4, tiff.endless_directories),
    "gif_comments": ("GIF of 10 million comments", 2, others.gif_comments),
    "gif_frames": ("GIF of 400,000 pictures", 4, others.gif_frames),
    "gif_sub_blocks": ("GIF whose pixels come in blocks of one byte", 2, others.gif_sub_blocks),
    "bmp_deltas": ("BMP of 8 million run-length deltas", 2, others.bmp_deltas),
    "bmp_lines": ("BMP of 16 million ends of lines", 2, others.bmp_runs),
    "webp_chunks": ("WebP of 3.5 million unknown chunks", 2, others.webp_chunks),
    "webp_frames": ("Animated WebP of 300,000 pictures", 2, others.webp_frames),
    "avif_boxes": ("AVIF of 3.8 million empty boxes", 2, others.avif_boxes),
    "avif_large": ("Eight flat AVIFs of 7000 x 7000", 8, others.large_avif),
    "webp_large": ("Eight flat WebPs of 7000 x 7000", 8, others.large_webp),
    "jpeg_no_data": ("Eight JPEGs of 7000 x 7000 without data", 8, more_images.jpeg_without_data),
    "jpeg_arithmetic": (
        "Eight JPEGs of 7000 x 7000 in arithmetic coding without data",
        8,
        lambda: more_images.jpeg_without_data(marker=0xC9),
    ),
    "jpeg_no_restarts": (
        "JPEG of 7000 x 7000 with a restart interval of one block",
        4,
        more_images.jpeg_restart_each_block,
    ),
    "jpeg_profile": ("JPEG with a colour profile of 16 MB", 2, more_images.jpeg_profile),
    "jpeg_profiles": (
        "JPEG with 255 first pieces of colour profiles",
        2,
        more_images.jpeg_profiles_of_one,
    ),
    "jpeg_pictures": (
        "JPEG that announces 4,000 million pictures",
        4,
        more_images.jpeg_many_pictures,
    ),
    "jpeg_xmp": ("JPEG with 30 MB of XMP", 2, more_images.jpeg_extended_xmp),
    "jpeg_exif_loop": ("JPEG whose EXIF leads to itself", 4, more_images.jpeg_looping_exif),
    "png_empty_blocks": ("PNG of 6 million empty blocks", 2, more_images.png_empty_blocks),
    "png_huffman_tables": (
        "PNG of 2 million Huffman tables",
        2,
        more_images.png_huffman_tables,
    ),
    "png_interlaced": ("Interlaced PNG of 7000 x 7000, 16 bits", 4, more_images.png_interlaced),
    "png_row": ("PNG of 1,000,000 x 1", 4, lambda: more_images.png_thin(1_000_000, 1)),
    "png_wide_row": ("PNG of 35 million x 1", 2, lambda: more_images.png_thin(35_000_000, 1)),
    "png_column": ("PNG of 1 x 1,000,000", 4, lambda: more_images.png_thin(1, 1_000_000)),
    "png_long_column": ("PNG of 1 x 49 million", 2, lambda: more_images.png_thin(1, 49_000_000)),
    "png_itxt_bombs": ("PNG of 9,000 iTXt bombs", 2, more_images.png_international_text),
    "png_profile_bombs": ("PNG of 9,000 profile bombs", 2, more_images.png_profiles),
    "gif_comment": ("GIF with a comment of 30 MB", 2, more_images.gif_comment),
    "gif_lzw": ("Four flat GIFs of 7000 x 7000", 4, more_images.gif_lzw),
    "gif_clear_codes": ("GIF of 40 million clear codes", 2, more_images.gif_clear_codes),
    "bmp_negative": (
        "BMP of -2147483648 x -2147483648",
        4,
        lambda: more_images.bmp_head(-(2**31), -(2**31)),
    ),
    "bmp_colours": (
        "BMP with 4,000 million colours",
        4,
        lambda: more_images.bmp_head(64, 64, 2**32 - 1, bits=8),
    ),
    "bmp_offset": (
        "BMP whose pixels begin at 4 GB",
        4,
        lambda: more_images.bmp_head(64, 64, 0, 2**32 - 1),
    ),
    "webp_frames_most": ("WebP of 19,000 frames", 4, more_images.webp_frames_allowed),
    "webp_lying_frame": (
        "WebP of 64 x 64 with a frame of 16383 x 16383",
        4,
        more_images.webp_lying_frame,
    ),
    "webp_lossless": ("Four WebPs of 7000 x 7000 in 38 bytes", 4, more_images.lossless_webp),
    "avif_lying_size": (
        "AVIF of 64 x 64 with a frame of 7000 x 7000",
        4,
        more_images.avif_lying_size,
    ),
    "avif_grid": ("AVIF of 3,969 tiles", 4, more_images.avif_grid),
    "accepted_avifs": ("Eight flat AVIFs of 5000 x 5000", 8, partial(others.flat, "AVIF", 5000)),
    "accepted_jpegs": ("Eight flat JPEGs of 7000 x 7000", 8, partial(others.flat, "JPEG", 7000)),
    "accepted_pngs": ("Eight flat PNGs of 5900 x 5900", 8, partial(others.flat, "PNG", 5900)),
    "accepted_webps": ("Eight flat WebPs of 4600 x 4600", 8, partial(others.flat, "WEBP", 4600)),
}


def attack(name: str) -> Callable[[Target], Steps]:
    """Return the attack with one kind of file."""
    about, count, build = FILES[name]

    def run(target: Target) -> Steps:
        data = build()
        paths = ("/classify", "/filter?name=invert")
        requests = [post(paths[n % 2], data) for n in range(count)]
        yield None
        yield from ask_all(target, requests, 80.0, LASTING)

    run.__name__ = name
    run.__doc__ = f"{about}."
    return run
