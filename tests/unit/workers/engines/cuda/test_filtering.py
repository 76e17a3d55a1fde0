"""Chains of filters as the GPU's engine lays them out, on the CPU by emulation."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast
from unittest.mock import Mock

import numpy as np
import pytest
from PIL import Image as PillowImage

from models.codec import Encoding, ImageFormat, encode, pixels_of
from models.codec.colour import cicp_profile
from models.codec.matrix_shaper import SHAPER, matrix_shaper, shaped
from models.codec.stripes import upright as turned
from models.domain.errors import Undecodable
from models.domain.image import Image, Jpeg, Source, Subsampling
from models.domain.job import Job
from tests.emulation.staging import (
    CPU,
    EmulatedKernels,
    NoStreams,
    Planes,
    jpeg_file,
    noise,
    staging_slot,
)
from tests.pictures import encoded
from workers.engines.cuda import jpeg_encoder
from workers.engines.cuda.filtering import GpuFiltering
from workers.engines.cuda.nvjpeg import Decoder
from workers.engines.cuda.slot import Region, SlotFull
from workers.engines.cuda.sources import BatchSources
from workers.filters.marks import picture_of
from workers.filters.registry import parse_chain, parse_one
from workers.operations import DeviceJpeg, FilterChain

ROOM = 1 << 20
SMALL = Encoding(85, chroma="422")
SIZES = [(1, 1), (1, 30), (17, 5), (64, 64), (31, 77)]
SOBEL = parse_one("sobel", {})
CHAIN = FilterChain(
    parse_chain([{"name": "gaussian_blur", "sigma": 1}, {"name": "invert"}, {"name": "sobel"}])
)


def ran(operation: FilterChain, images: Sequence[Source], decoder: Any = None) -> list[Any]:
    slot = staging_slot(ROOM, cast(Decoder, decoder))
    scratch = Region(4 * ROOM, CPU)
    scratch.memory.fill_(0xCD)
    filtering = GpuFiltering(EmulatedKernels(), cast(Any, NoStreams()), scratch)
    filtering.launch(slot, [Job(operation, image) for image in images])
    return [image.pixels for image in filtering.results(slot) if isinstance(image, Image)]


def specified(operation: FilterChain, pixels: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    for each in operation.filters:
        pixels = each.apply(pixels)
    return pixels


def test_a_chain_over_mixed_sizes_and_channels_gives_the_bytes_of_the_specification() -> None:
    images = [Image(noise(*size, channels)) for size in SIZES for channels in (1, 3, 4)]
    for found, image in zip(ran(CHAIN, images), images, strict=True):
        assert np.array_equal(found, specified(CHAIN, image.pixels)), image.pixels.shape


def test_all_images_of_a_batch_share_the_picture_of_an_overlay() -> None:
    options = {"tile": True, "picture": picture_of(noise(512, 512, 4))}
    chain = FilterChain((parse_one("overlay", options),))
    images = [Image(noise(*size, channels)) for size in SIZES for channels in (1, 3, 4)]
    for found, image in zip(ran(chain, images), images, strict=True):
        assert np.array_equal(found, specified(chain, image.pixels)), image.pixels.shape


def test_runs_of_tables_take_one_launch_and_mix_with_others_in_a_batch() -> None:
    kernels = EmulatedKernels()
    chains = [
        FilterChain(parse_chain([*({"name": name} for name in names), {"name": "sobel"}]))
        for names in (["invert", "gamma", "posterize"], ["solarize"], ["levels", "brightness"])
    ]
    images = [Image(noise(33, 40, channels)) for channels in (1, 3, 4)]
    jobs = [Job(chain, image) for chain, image in zip(chains, images, strict=True)]
    assert len({job.operation.batch_key for job in jobs}) == 1
    slot, scratch = staging_slot(ROOM), Region(4 * ROOM, CPU)
    filtering = GpuFiltering(kernels, cast(Any, NoStreams()), scratch)
    filtering.launch(slot, jobs)
    assert kernels.launched == ["apply_table", *(each.kernel for each in SOBEL.device_passes)]
    for found, chain, image in zip(filtering.results(slot), chains, images, strict=True):
        assert isinstance(found, Image)
        assert np.array_equal(found.pixels, specified(chain, image.pixels))


@pytest.mark.parametrize("encodes", [True, False])
def test_results_are_files_of_libjpeg_turbo_where_a_file_is_smaller_than_its_pixels(
    encodes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = Mock(wraps=jpeg_encoder.tables)
    monkeypatch.setattr(jpeg_encoder, "tables", tables)
    asked = DeviceJpeg(85, Subsampling.S422)
    chain = FilterChain(parse_chain([{"name": "invert"}]), asked)
    shapes = [(40, 50, 3), (40, 50, 1), (40, 50, 4), (16, 131, 3), (15, 90, 3), (1, 1, 3)]
    images = [Image(noise(*shape)) for shape in shapes]
    slot = staging_slot(ROOM)
    scratch = Region(4 * ROOM, CPU)
    filtering = GpuFiltering(EmulatedKernels(), cast(Any, NoStreams()), scratch)
    filtering.encodes = encodes
    filtering.launch(slot, [Job(chain, image) for image in images])
    assert tables.call_count == (2 if encodes else 0)  # one of grey, one of colour
    found = filtering.results(slot)
    kinds = [isinstance(each, Jpeg) for each in found]
    assert kinds == ([True, True, False, True, False, False] if encodes else [False] * 6)
    for each, image in zip(found, images, strict=True):
        expected = specified(chain, image.pixels)
        if isinstance(each, Image):
            assert np.array_equal(each.pixels, expected)
            continue
        assert each.data.tobytes() == encode(Image(expected), ImageFormat.JPEG, SMALL)
        assert (each.height, each.width, each.orientation) == (*expected.shape[:2], 1)
        grey = expected.shape[2] == 1
        assert each.subsampling is (Subsampling.GREY if grey else Subsampling.S422)


def test_images_that_change_size_along_a_chain_have_the_bytes_of_the_specification() -> None:
    names = [
        {"name": "pad", "left": 7, "top": 2, "border_mode": "wrap"},
        {"name": "resize", "width": 40, "method": "lanczos"},
        {"name": "rotate90", "turns": 3},
        {"name": "vignette"},
        {"name": "crop", "width": 5, "top": 3},
        {"name": "clahe", "tiles": 2},
        {"name": "composite"},
        {"name": "colorize"},
        {"name": "bilateral", "diameter": 3},
        {"name": "noise"},
        {"name": "fft_filter", "kind": "notch", "notches": [[0.25, 0.1]]},
    ]
    chain = FilterChain(parse_chain(names))
    sizes = [(41, 30), (64, 64), (50, 77), (9, 8)]
    images = [Image(noise(*size, channels)) for size in sizes for channels in (1, 3, 4)]
    for found, image in zip(ran(chain, images), images, strict=True):
        assert np.array_equal(found, specified(chain, image.pixels)), image.pixels.shape


def test_a_batch_too_large_for_a_slot_is_refused_before_anything_is_written_beyond_it() -> None:
    images = [Image(np.zeros((512, 512, 3), np.uint8))] * 2
    with pytest.raises(SlotFull):
        ran(CHAIN, images)


def test_the_tables_of_many_tiles_need_none_of_the_room_for_uploads() -> None:
    chain = FilterChain(parse_chain([{"name": "clahe", "tiles": 32}]))
    images = [Image(noise(9, 7 + n, 3)) for n in range(6)]
    for found, image in zip(ran(chain, images), images, strict=True):
        assert np.array_equal(found, specified(chain, image.pixels))


def upsampled(plane: np.ndarray[Any, Any], wide: int, high: int, shape: tuple[int, int]) -> Any:
    """Compute libjpeg-turbo's fancy upsampling (jdsample.c), written anew."""
    p = plane.astype(np.int64)
    if p.shape[1] <= 2:
        return np.repeat(np.repeat(p, high, 0), wide, 1)[: shape[0], : shape[1]]
    if high == 2:
        above, below = np.vstack([p[:1], p[:-1]]), np.vstack([p[1:], p[-1:]])
        p = np.stack([3 * p + above, 3 * p + below], 1).reshape(-1, p.shape[1])
    left, right = np.hstack([p[:, :1], p[:, :-1]]), np.hstack([p[:, 1:], p[:, -1:]])
    if wide == 2:
        bits, first, second = (4, 8, 7) if high == 2 else (2, 1, 2)
        p = np.stack([3 * p + left + first, 3 * p + right + second], 2).reshape(len(p), -1) >> bits
    return p[: shape[0], : shape[1]]


def converted(y: Any, cb: Any, cr: Any) -> np.ndarray[Any, Any]:
    """Compute JFIF's conversion as libjpeg-turbo rounds it (jdcolor.c), written anew: uint8 (H, W,
    3).
    """
    y, cb, cr = y.astype(np.int64), cb - 128, cr - 128
    red = y + ((91881 * cr + 32768) >> 16)
    green = y + ((-22554 * cb - 46802 * cr + 32768) >> 16)
    blue = y + ((116130 * cb + 32768) >> 16)
    joined: np.ndarray[Any, Any] = np.stack([red, green, blue], -1)
    return joined.clip(0, 255).astype(np.uint8)


FACTORS = {Subsampling.S444: (1, 1), Subsampling.S422: (2, 1), Subsampling.S420: (2, 2)}
TWICE = FilterChain(parse_chain([{"name": "invert"}, {"name": "invert"}]))


@pytest.mark.parametrize("subsampling", FACTORS)
@pytest.mark.parametrize("size", [(1, 1), (3, 4), (4, 5), (16, 17), (33, 50)])
def test_planes_become_the_pixels_libjpeg_would_make(
    subsampling: Subsampling, size: tuple[int, int]
) -> None:
    (height, width), (wide, high) = size, FACTORS[subsampling]
    chroma = (-(-height // high), -(-width // wide))
    planes = [noise(*shape, 1, seed)[..., 0] for seed, shape in enumerate((size, chroma, chroma))]
    jpeg = jpeg_file(height, width, 1, subsampling)
    shaper = matrix_shaper(cicp_profile(12, 13, grey=False) or b"")
    found, other = ran(TWICE, [jpeg, replace(jpeg, shaper=shaper)], Planes(planes))
    blue, red = (upsampled(plane, wide, high, size) for plane in planes[1:])
    expected = converted(planes[0], blue, red)
    assert np.array_equal(found, expected)
    assert np.array_equal(other, shaped(expected, np.frombuffer(shaper or b"", SHAPER)[0]))


@pytest.mark.parametrize("orientation", range(1, 9))
def test_decoded_jpegs_are_turned_upright(orientation: int) -> None:
    stored = noise(5, 3, 1)
    upright = turned(stored, orientation)
    height, width = upright.shape[:2]
    jpeg = jpeg_file(height, width, orientation, Subsampling.GREY)
    (found,) = ran(TWICE, [jpeg], Planes([stored[..., 0]]))
    assert np.array_equal(found, upright)


def test_jpegs_the_engines_refuse_are_decoded_here_and_broken_ones_fail_alone() -> None:
    good = np.frombuffer(encoded(PillowImage.fromarray(noise(20, 30, 3))), np.uint8)
    cut = np.concatenate([good[:-100], good[-2:]])
    jpegs = [Jpeg(data, 20, 30, 1, Subsampling.S420) for data in (good, cut, good)]
    slot = staging_slot(ROOM, cast(Decoder, Planes([], fails=True)))
    rows = BatchSources(slot, EmulatedKernels()).place(jpegs)
    assert list(slot.failed) == [1]
    assert isinstance(slot.failed[1], Undecodable)
    assert rows["width"].tolist() == [30, 1, 30]
    first, _, last = ran(TWICE, jpegs, Planes([], fails=True))
    assert np.array_equal(first, pixels_of(jpegs[0]).pixels)
    assert np.array_equal(last, first)
