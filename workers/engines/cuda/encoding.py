"""A batch's results as JPEGs, made from the pixels that a chain of filters left on the device."""

import logging
from collections.abc import Sequence

import numpy as np
import torch
from cuda.pathfinder import DynamicLibNotFoundError

from models.errors import ServiceError, Unavailable
from models.image import Image, Jpeg
from models.job import Result
from workers.engines.cuda.nvjpeg import NvJpeg, NvJpegError
from workers.engines.cuda.nvjpeg_encoder import Encoder
from workers.engines.cuda.slot import Slot
from workers.operations import DeviceJpeg

log = logging.getLogger("darkroom.cuda")


def _encoder() -> Encoder:
    library = NvJpeg(hardware=False)
    try:
        return Encoder(library, torch.cuda.Stream())
    except NvJpegError:
        library.close()
        raise


def as_jpegs(
    slot: Slot, values: Sequence[Result | ServiceError], asked: DeviceJpeg
) -> list[Result | ServiceError]:
    """`values` with RGB images as JPEGs; once the slot's work is done, before it is released.

    Pixels stay pixels where the device refuses them, and where a JPEG would be the larger. Without
    nvJPEG all are Unavailable. Called with the slot's device as the current one.
    """
    made = list(values)
    assert slot.result is not None
    try:
        if slot.encoder is None:  # most servers are never asked, and need no memory for it
            slot.encoder = _encoder()
    except (NvJpegError, DynamicLibNotFoundError) as error:
        log.warning("JPEGs cannot be encoded on the GPU: %s", error)
        return [Unavailable("encoder: the GPU here cannot encode; leave it out")] * len(made)
    for index, (value, (offset, _)) in enumerate(zip(values, slot.places, strict=True)):
        if not isinstance(value, Image) or value.channels != 3:
            continue
        address = slot.result.address(offset)
        try:
            file = slot.encoder.encode(
                address, value.height, value.width, asked.quality, asked.subsampling
            )
        except NvJpegError as error:
            log.warning("an image is encoded on the CPU: %s", error)
            continue
        if len(file) < value.pixels.size:
            made[index] = Jpeg(
                np.ascontiguousarray(file), value.height, value.width, 1, asked.subsampling
            )
    return made
