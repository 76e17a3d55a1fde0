"""Labels on the GPU: preprocessing bit-equal, scores those of the CPU in single precision."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from PIL import ExifTags
from PIL import Image as PillowImage

from models.codec import pixels_of
from models.domain.image import Image, Source
from models.domain.job import Labels, Vector
from models.networks.registry import RESNET18, RESNET50
from models.settings import Precision
from tests.gpu.conftest import MAX_BATCH_SIZE, as_jpeg, jpeg, photos
from tests.gpu.equality import MAX_PIXELS, Run, runner
from workers.engines.cpu.engine import CpuEngine
from workers.engines.cpu.network import CpuNetwork
from workers.engines.cuda.engine import CudaEngine
from workers.engines.cuda.network import GraphedNetwork
from workers.engines.model import State, random_state
from workers.operations import Classify, FunctionToApply, NetworkOutput
from workers.preprocess import crop

LOGITS = Classify(top_k=10, function_to_apply=FunctionToApply.NONE)


def by_class(labels: object) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    """Return the logits in class order, float64 (classes,)."""
    assert isinstance(labels, Labels)
    logits = np.zeros(len(labels.class_ids))
    logits[list(labels.class_ids)] = labels.scores
    return logits


def compare_inputs(run: Run, engine: CudaEngine, batch: Sequence[Source]) -> None:
    """Compare the network's inputs that the device makes with those of the CPU."""
    (network,) = engine._networks
    run(LOGITS, batch)
    found = network.input[: len(batch)].permute(0, 2, 3, 1).cpu()
    for made, source in zip(found, batch, strict=True):
        levels = torch.from_numpy(crop(pixels_of(source), RESNET18.preprocessing)).long()
        channels = torch.arange(3).expand_as(levels)
        assert torch.equal(made, network.table.cpu()[levels, channels]), source.height


def test_the_networks_input_is_bit_equal_to_the_cpus(run: Run, engine: CudaEngine) -> None:
    sources = [as_jpeg(data) for data in photos()][:MAX_BATCH_SIZE]
    random = np.random.default_rng(1)
    images = [
        Image(random.integers(0, 256, (h, w, c), np.uint8))
        for h, w, c in [(1, 1, 3), (500, 333, 4), (224, 224, 1), (900, 70, 3), (257, 3001, 3)]
    ]
    for batch in (sources, images):
        compare_inputs(run, engine, batch)


def test_tall_images_are_bit_equal_as_pixels_and_as_jpegs(run: Run, engine: CudaEngine) -> None:
    random = np.random.default_rng(2)
    images = [
        Image(random.integers(0, 256, (h, w, c), np.uint8))
        for h, w, c in [(1200, 300, 3), (900, 400, 4), (2000, 257, 1), (2400, 1080, 3)]
    ]
    pixels = images[0].pixels
    jpegs: list[Source] = [as_jpeg(jpeg(pixels, subsampling=chroma)) for chroma in (0, 1, 2)]
    for orientation, stored in [(3, pixels), (6, pixels.swapaxes(0, 1).copy()), (6, pixels)]:
        exif = PillowImage.Exif()
        exif[ExifTags.Base.Orientation] = orientation
        jpegs.append(as_jpeg(jpeg(stored, exif=exif)))
    compare_inputs(run, engine, images)
    compare_inputs(run, engine, [*jpegs, *images[:2]])


def test_logits_and_labels_are_those_of_the_cpu_in_fp32(run: Run, state: State) -> None:
    sources = [as_jpeg(data) for data in photos()]
    cpu = CpuNetwork(state, Precision.FP32, RESNET18)
    for start in range(0, len(sources), MAX_BATCH_SIZE):
        batch = sources[start : start + MAX_BATCH_SIZE]
        expected = cpu.logits(
            np.stack([crop(pixels_of(source), RESNET18.preprocessing) for source in batch])
        )
        for labels, logits in zip(run(LOGITS, batch).values, expected, strict=True):
            assert np.abs(by_class(labels) - logits).max() < 0.05
            second, first = np.sort(logits)[-2:]
            if first - second >= 0.01:
                assert by_class(labels).argmax() == logits.argmax()


def test_a_mixed_batch_gives_each_image_what_it_gets_alone(run: Run) -> None:
    sources = [as_jpeg(data) for data in photos()][:20]
    pixels = [Image(pixels_of(source).pixels) for source in sources[:10]]
    mixed = [each for pair in zip(sources[:10], pixels, strict=True) for each in pair]
    together = run(LOGITS, mixed).values
    for labels, source in zip(together, mixed, strict=True):
        (alone,) = run(LOGITS, [source]).values
        assert np.abs(by_class(labels) - by_class(alone)).max() < 0.05
    for encoded, decoded in zip(together[::2], together[1::2], strict=True):
        assert np.array_equal(by_class(encoded), by_class(decoded))


@pytest.mark.parametrize("function", FunctionToApply)
def test_scores_are_those_of_the_cpu(run: Run, state: State, function: FunctionToApply) -> None:
    source = as_jpeg(photos()[0])
    operation = Classify(top_k=3, function_to_apply=function)
    (found,) = run(operation, [source]).values
    assert isinstance(found, Labels)
    cpu = CpuEngine([CpuNetwork(state, Precision.FP32, RESNET18)], 1, 2)
    (expected,) = runner(cpu)(operation, [source]).values
    assert isinstance(expected, Labels)
    assert found.class_ids[0] == expected.class_ids[0]
    assert found.scores == pytest.approx(expected.scores, abs=0.05)


@pytest.mark.parametrize("output", [NetworkOutput.LOGITS, NetworkOutput.EMBEDDING])
def test_vectors_are_those_of_the_cpu_in_fp32(
    run: Run, state: State, output: NetworkOutput
) -> None:
    sources = [as_jpeg(data) for data in photos()[:20]]
    cpu = CpuNetwork(state, Precision.FP32, RESNET18)
    crops = np.stack([crop(pixels_of(source), RESNET18.preprocessing) for source in sources])
    wanted = cpu.logits(crops) if output is NetworkOutput.LOGITS else cpu.features(crops)
    found = run(Classify(output=output), sources).values
    for vector, expected in zip(found, wanted, strict=True):
        assert isinstance(vector, Vector)
        assert vector.values.shape == expected.shape
        assert np.abs(vector.values - expected).max() < 0.05


@pytest.mark.parametrize("output", [NetworkOutput.LOGITS, NetworkOutput.EMBEDDING])
def test_the_same_batch_gives_the_same_vectors_again(run: Run, output: NetworkOutput) -> None:
    sources = [as_jpeg(data) for data in photos()[:9]]
    first, second = (run(Classify(output=output), sources).values for _ in range(2))
    for one, other in zip(first, second, strict=True):
        assert isinstance(one, Vector)
        assert isinstance(other, Vector)
        assert one.values.tobytes() == other.values.tobytes()


def test_two_networks_share_a_gpu_and_each_gets_its_own_crops() -> None:
    states = {spec.name: random_state(0, 10, spec) for spec in (RESNET18, RESNET50)}
    networks = [
        GraphedNetwork(states[spec.name], Precision.FP32, spec, 4, "cuda:0")
        for spec in (RESNET18, RESNET50)
    ]
    made = CudaEngine(networks, 4, MAX_PIXELS, "cuda:0")
    made.warm_up()
    try:
        sources = [as_jpeg(data) for data in photos()[:3]]
        for spec in (RESNET18, RESNET50):
            operation = Classify(network=spec.name, output=NetworkOutput.EMBEDDING)
            found = runner(made)(operation, sources).values
            cpu = CpuNetwork(states[spec.name], Precision.FP32, spec)
            crops = np.stack([crop(pixels_of(each), spec.preprocessing) for each in sources])
            for vector, expected in zip(found, cpu.features(crops), strict=True):
                assert isinstance(vector, Vector)
                assert np.abs(vector.values - expected).max() <= 1e-3 * np.abs(expected).max()
    finally:
        made.close()
