"""Chains of filters as the GPU's engine lays them out, on the CPU by emulation."""

import ctypes
from collections.abc import Sequence
from io import BytesIO
from typing import Any, cast

import numpy as np
import pytest
import simplejpeg
import torch
from PIL import Image as PillowImage

from models.codec import pixels_of
from models.codec.stripes import upright as turned
from models.domain.errors import Unavailable, Undecodable
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
from workers.engines.cuda import filtering as gpu_filtering
from workers.engines.cuda.filtering import GpuFiltering
from workers.engines.cuda.nvjpeg import TOGETHER, Decoder, NvJpegError, Placed
from workers.engines.cuda.slot import Region, SlotFull
from workers.engines.cuda.sources import BatchSources
from workers.filters.registry import parse_chain, parse_one
from workers.operations import DeviceJpeg, FilterChain

ROOM = 1 << 20
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
    return [image.pixels for image in filtering.results(slot)]


def specified(operation: FilterChain, pixels: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    for each in operation.filters:
        pixels = each.apply(pixels)
    return pixels


def test_a_chain_over_mixed_sizes_and_channels_gives_the_bytes_of_the_specification() -> None:
    images = [Image(noise(*size, channels)) for size in SIZES for channels in (1, 3, 4)]
    for found, image in zip(ran(CHAIN, images), images, strict=True):
        assert np.array_equal(found, specified(CHAIN, image.pixels)), image.pixels.shape


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
        assert np.array_equal(found.pixels, specified(chain, image.pixels))


class Encoder:
    """Makes a file of the pixels it finds at the address, or fails as the real one does."""

    def __init__(self, *, fails: bool = False) -> None:
        self._fails = fails

    def encode(
        self, images: Sequence[Placed], quality: int, subsampling: Subsampling
    ) -> list[np.ndarray[Any, Any] | NvJpegError]:
        if self._fails:
            return [NvJpegError("nvjpegEncodeImage", 7)] * len(images)
        return [self._file(*image, quality, subsampling) for image in images]

    def _file(
        self, address: int, height: int, width: int, quality: int, subsampling: Subsampling
    ) -> np.ndarray[Any, Any]:
        lying = ctypes.string_at(address, height * width * 3)
        pixels = np.frombuffer(lying, np.uint8).reshape(height, width, 3)
        file = simplejpeg.encode_jpeg(pixels, quality, "RGB", subsampling.replace(":", ""))
        return np.frombuffer(file, np.uint8)


@pytest.mark.parametrize("fails", [False, True])
def test_rgb_results_are_encoded_where_they_lie_and_others_stay_pixels(fails: bool) -> None:
    asked = DeviceJpeg(85, Subsampling.S422)
    chain = FilterChain(parse_chain([{"name": "invert"}]), asked)
    images = [Image(noise(40, 50, channels)) for channels in (3, 1, 4, 3)]
    images.append(Image(noise(1, 1, 3)))  # of which a file is larger than its pixels
    slot = staging_slot(ROOM)
    slot.encoder = cast(Any, Encoder(fails=fails))
    scratch = Region(4 * ROOM, CPU)
    filtering = GpuFiltering(EmulatedKernels(), cast(Any, NoStreams()), scratch)
    filtering.launch(slot, [Job(chain, image) for image in images])
    found = gpu_filtering.as_jpegs(slot, asked)
    kinds = [type(each) for each in found]
    assert kinds == ([Image] * 5 if fails else [Jpeg, Image, Image, Jpeg, Image])
    for each, image in zip(found, images, strict=True):
        expected = specified(chain, image.pixels)
        if isinstance(each, Image):
            assert np.array_equal(each.pixels, expected)
        else:
            assert isinstance(each, Jpeg)
            assert each.data.tobytes() == simplejpeg.encode_jpeg(expected, 85, "RGB", "422")
            assert (each.height, each.width, each.orientation) == (40, 50, 1)
            assert each.subsampling is Subsampling.S422


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
    images = [Image(noise(9, 7 + n, 3)) for n in range(16)]
    for found, image in zip(ran(chain, images), images, strict=True):
        assert np.array_equal(found, specified(chain, image.pixels))


@pytest.fixture(autouse=True)
def no_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stream:
        cuda_stream = 0

    monkeypatch.setattr(torch.cuda, "current_stream", Stream)
    assert CPU.type == "cpu"


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
    (found,) = ran(TWICE, [jpeg], Planes(planes))
    blue, red = (upsampled(plane, wide, high, size) for plane in planes[1:])
    assert np.array_equal(found, converted(planes[0], blue, red))


@pytest.mark.parametrize("orientation", range(1, 9))
def test_decoded_jpegs_are_turned_upright(orientation: int) -> None:
    stored = noise(5, 3, 1)
    upright = turned(stored, orientation)
    height, width = upright.shape[:2]
    jpeg = jpeg_file(height, width, orientation, Subsampling.GREY)
    (found,) = ran(TWICE, [jpeg], Planes([stored[..., 0]]))
    assert np.array_equal(found, upright)


def test_jpegs_the_engines_refuse_are_decoded_here_and_broken_ones_fail_alone() -> None:
    file = BytesIO()
    PillowImage.fromarray(noise(20, 30, 3)).save(file, "JPEG")
    good = np.frombuffer(file.getvalue(), np.uint8)
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


def test_an_encoder_is_prepared_with_each_of_its_states(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[list[tuple[int, int]]] = []

    class Noting(Encoder):
        """An encoder that notes the sizes of what it is given."""

        def encode(
            self, images: Sequence[Any], quality: int, subsampling: Subsampling
        ) -> list[Any]:
            made.append([(image.height, image.width) for image in images])
            return super().encode(images, quality, subsampling)

    monkeypatch.setattr(gpu_filtering, "_encoder", Noting)
    slot = staging_slot(ROOM)
    gpu_filtering.prepare(slot, 24)
    assert made == [[(24, 24)] * TOGETHER]
    assert slot.encoder is gpu_filtering._made(slot)


def test_without_nvjpeg_every_image_of_the_batch_is_unavailable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def missing(**_options: bool) -> None:
        raise NvJpegError("nvjpegCreateEx", 3)

    monkeypatch.setattr(gpu_filtering, "NvJpeg", missing)
    slot = staging_slot(ROOM)
    slot.result = slot.first
    slot.places = [(0, (4, 5, 3))] * 2
    found = gpu_filtering.as_jpegs(slot, DeviceJpeg(85, Subsampling.S422))
    assert [type(each) for each in found] == [Unavailable] * 2
