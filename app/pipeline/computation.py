"""Send the pixels of one image to the backend, and encode what comes back."""

from app.admission import Permit
from app.intake.wanted import Version
from app.pipeline.encoding import ImageEncoder
from app.pipeline.memory.held_image import HeldImage
from app.pipeline.memory.memory_need import (
    MOST_PER_PIXEL,
    beside,
    check,
    check_filtering,
    filtering,
)
from app.pipeline.results.encoded_files import EncodedFiles
from app.pipeline.results.outcomes import EncodedImage
from app.pipeline.results.timings import Timings
from models.codec import ImageFormat
from models.domain.backend import Backend, Load
from models.domain.image import Source
from models.domain.job import Job, Labels, Operation, Result, Vector
from workers.operations import Classify


class Computation:
    """Labels and filtered files of decoded images.

    `max_pixels` bounds what filters may make; `files` keeps the results until they are sent.
    """

    def __init__(
        self, backend: Backend, encoder: ImageEncoder, files: EncodedFiles, max_pixels: int
    ) -> None:
        self._backend = backend
        self._encoder = encoder
        self._files = files
        self._max_pixels = max_pixels

    def load(self) -> Load:
        """Return how busy the backend is, and what it takes."""
        return self._backend.load()

    async def labels(
        self,
        source: HeldImage,
        operation: Classify,
        permit: Permit,
        stages: Timings,
        *,
        last: bool = False,
    ) -> Labels | Vector:
        """Return the labels of an image, or the vector that is wanted instead of them.

        `last`: the source is not needed afterwards.
        """
        image = source.image(last=last)
        return await self.network_output(image, operation, permit, stages)

    async def network_output(
        self, image: Source, operation: Classify, permit: Permit, stages: Timings
    ) -> Labels | Vector:
        """Return what a network makes of an image, or of its input."""
        result = await self._run(operation, image, permit, stages)
        assert isinstance(result, Labels | Vector)
        return result

    async def filtered(
        self, source: HeldImage, version: Version, permit: Permit, stages: Timings, *, last: bool
    ) -> EncodedImage:
        """Put an image through the filters of a version and encode it.

        `last`: the source is not needed after the filters.
        """
        operation, output = version.operation, version.output
        format_ = output.format_for(source.info.format)
        cost = self._checked(source, version, format_, shared=not last)
        result = await self._filtered(operation, source, permit, stages, last=last)
        with stages.measure("encode"):
            behind = permit.in_background
            encoding = output.encoding
            data = await self._encoder.encode(result, format_, encoding, cost, background=behind)
            return EncodedImage(self._files.keep(data), format_, result.width, result.height)

    def _checked(
        self, source: HeldImage, version: Version, format_: ImageFormat, *, shared: bool
    ) -> float:
        """Return the estimated CPU seconds of encoding a version of an image.

        Raises the error of a version that would take more pixels, memory or time than is allowed.
        """
        chain, encoding = version.operation, version.output.encoding
        shape = source.height, source.width, source.channels
        most = check(chain, self._max_pixels, source.height, source.width)
        if most * MOST_PER_PIXEL > self._encoder.most_memory:
            on_device, encoded = self.load().on_gpu, source.encoded
            needed = filtering(chain, shape, on_device=on_device, encoded=encoded, shared=shared)
            check_filtering(needed, shape, self._encoder.most_memory)
        kept = beside(shape, shared=shared)
        return self._encoder.check(chain.shape_after(shape), format_, encoding, beside=kept)

    async def _filtered(
        self,
        operation: Operation,
        source: HeldImage,
        permit: Permit,
        stages: Timings,
        *,
        last: bool,
    ) -> HeldImage:
        image = source.image(last=last)
        result = await self._run(operation, image, permit, stages, owned=last)
        assert not isinstance(result, Labels | Vector)
        return source.result(result)

    async def _run(
        self,
        operation: Operation,
        image: Source,
        permit: Permit,
        stages: Timings,
        *,
        owned: bool = False,
    ) -> Result:
        job = Job(operation, image, permit.deadline, permit.lane, owned)
        completed = await self._backend.run(job)
        stages.add(completed.trace)
        return completed.result
