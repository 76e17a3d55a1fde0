"""JPEGs of a batch's results, made from the pixels that filters left on the device."""

import logging
import math

import torch
from cuda.pathfinder import DynamicLibNotFoundError

from models.domain.errors import ServiceError, Unavailable
from models.domain.image import Image, Jpeg, Pixels, Subsampling
from models.domain.job import Result
from workers.engines.cuda.nvjpeg.decoder import NvJpeg, NvJpegError, NvJpegUnfit
from workers.engines.cuda.nvjpeg.encoder import TOGETHER, Encoder, Placed
from workers.engines.cuda.slot import Slot
from workers.operations import DeviceJpeg

log = logging.getLogger("darkroom.cuda")


UNUSABLE = (NvJpegError, NvJpegUnfit, DynamicLibNotFoundError)
"""Errors of a library that is missing, or that the device cannot use."""

QUALITY = 85
"""Of the images that a new encoder is tried with."""


def prepare(slot: Slot, side: int) -> None:
    """Make the encoder of a slot and all of its states.

    The library loads its kernels with the first image of a process, and a state allocates memory
    for its first image: together half a second to a second, which the first requests would wait
    for. So grey images of `side` × `side` pixels are encoded with each state. A device that cannot
    encode is noted in the log: the engine serves without an encoder.
    """
    try:
        encoder = _made(slot)
        grey = torch.full((3 * side * side,), 128, dtype=torch.uint8).to(slot.first.memory.device)
        images = [Placed(grey.data_ptr(), side, side)] * TOGETHER
        encoder.encode(images, QUALITY, Subsampling.S420)
    except UNUSABLE as error:
        log.warning("JPEGs cannot be encoded on the GPU: %s", error)


def _made(slot: Slot) -> Encoder:
    """Return the encoder of a slot, and make it where `prepare` could not."""
    slot.encoder = slot.encoder or _encoder()
    return slot.encoder


def _encoder() -> Encoder:
    library = NvJpeg(hardware=False)
    try:
        return Encoder(library, torch.cuda.Stream())
    except NvJpegError:
        library.close()
        raise


def as_jpegs(slot: Slot, asked: DeviceJpeg) -> list[Result | ServiceError]:
    """Return the results of a batch that is done, with RGB images as JPEGs.

    Call this before the batch's slot is released, with the slot's device as the current one.
    Results stay pixels where the device refuses them, and where a JPEG would be larger. Without
    nvJPEG all of them are Unavailable.
    """
    assert slot.result is not None
    try:
        encoder = _made(slot)
    except UNUSABLE as error:
        log.warning("JPEGs cannot be encoded on the GPU: %s", error)
        return [Unavailable("encoder: the GPU here cannot encode; leave it out")] * len(slot.places)
    coloured = [index for index, (_, shape) in enumerate(slot.places) if shape[2] == 3]
    placed = [
        Placed(slot.result.address(offset), *shape[:2])
        for offset, shape in (slot.places[index] for index in coloured)
    ]
    try:
        files = encoder.encode(placed, asked.quality, asked.subsampling)
    except NvJpegError as error:
        files = [error] * len(placed)
    made = dict(zip(coloured, files, strict=True))
    return [_file(slot, index, made.get(index), asked) for index in range(len(slot.places))]


def _file(
    slot: Slot, index: int, file: Pixels | NvJpegError | None, asked: DeviceJpeg
) -> Image | Jpeg:
    offset, shape = slot.places[index]
    if isinstance(file, NvJpegError):
        log.warning("an image is encoded on the CPU: %s", file)
    elif file is not None and len(file) < math.prod(shape):
        return Jpeg(file, *shape[:2], 1, asked.subsampling)
    assert slot.result is not None
    pixels = slot.result.memory[offset : offset + math.prod(shape)]
    return Image(pixels.cpu().numpy().reshape(shape))
