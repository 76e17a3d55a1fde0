"""Read images that come as tensors: samples that were decoded, or the input of a network."""

import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import numpy as np

from app.decoders import DecoderPool
from app.intake.spool import Blob
from app.intake.wanted import ClassifyTensors
from app.pipeline.computation import Computation
from app.pipeline.context import ImageContext
from app.pipeline.memory.pixel_budget import PixelBudget
from models.domain.errors import InvalidParameter
from models.domain.image import Image, NetworkInput, Source
from models.domain.job import Labels, Vector

AT_ONCE = 1 << 20
"""Largest content, in bytes, that is looked at on the event loop: 0.1 ms for its 262,144 values."""

COPIES = 4
"""Times the bytes of samples that a tall image takes: its samples, and Pillow's copy of them."""

assert sys.byteorder == "little", "tensors are little-endian, and are used as they come"

InThread = Callable[..., Coroutine[Any, Any, Source]]


class TensorClassifier:
    """Makes the inputs of jobs of contents, within the budget of pixels, and has them computed."""

    def __init__(
        self,
        decoders: DecoderPool,
        budget: PixelBudget,
        in_thread: InThread,
        computation: Computation,
    ) -> None:
        self._decoders = decoders
        self._budget = budget
        self._in_thread = in_thread
        self._computation = computation

    async def classified(
        self, content: Blob, wanted: ClassifyTensors, context: ImageContext
    ) -> Labels | Vector:
        """Return what the network makes of an image.

        Raises InvalidParameter for values that are not finite, also among those of the output.
        """
        permit, stages = context.permit, context.stages
        async with self._held(content, wanted, context) as image:
            output = self._computation.network_output
            return _checked(await output(image, wanted.operation, permit, stages))

    @asynccontextmanager
    async def _held(
        self, content: Blob, wanted: ClassifyTensors, context: ImageContext
    ) -> AsyncIterator[Source]:
        """Provide the input, and hold the room for it while the block runs."""
        queues, memory = self._decoders.queues, COPIES * content.size
        async with AsyncExitStack() as held:
            with context.stages.measure("decode"):
                if not queues.is_small(memory):
                    await held.enter_async_context(queues.present(memory))
                await held.enter_async_context(self._budget.hold(wanted.n_pixels))
                if content.on_disk or content.size > AT_ONCE:
                    source = await self._in_thread(_source, content, wanted)
                else:
                    source = _source(content, wanted)
            content.close()
            yield source


def _source(content: Blob, wanted: ClassifyTensors) -> Source:
    data = content.read()
    if not wanted.operation.preprocessed:
        return Image(np.frombuffer(data, np.uint8).reshape(wanted.height, wanted.width, 3))
    values = np.frombuffer(data, np.float32)
    if not np.isfinite(values).all():
        raise InvalidParameter("the tensor of this image has values that are no finite numbers")
    return NetworkInput(values.reshape(3, wanted.height, wanted.width))


def _checked(found: Labels | Vector) -> Labels | Vector:
    """Return the output of a network; raise InvalidParameter if some of it is no finite number.

    Finite inputs that are far from those of photos overflow half precision.
    """
    values = found.values if isinstance(found, Vector) else np.asarray(found.scores)
    if not np.isfinite(values).all():
        raise InvalidParameter(
            "the network's output for this image is not finite: its values are too large; "
            "normalise them as the network expects"
        )
    return found
