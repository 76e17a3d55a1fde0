"""Folders of timm's networks on a GPU: the logits and embeddings of the CPU, and of timm itself."""

from pathlib import Path

import numpy as np
import pytest

from models.codec import flatten, pixels_of
from models.domain.image import Image, Source
from models.domain.job import Labels, Vector
from models.settings import Precision, Settings
from tests.gpu.conftest import as_jpeg, photos
from tests.gpu.equality import MAX_PIXELS, runner
from tests.own_networks import OWN, evaluated, network, save
from workers.engines.cpu.network import CpuNetwork
from workers.engines.cuda.engine import CudaEngine
from workers.engines.cuda.network import GraphedNetwork
from workers.engines.model import load_models
from workers.operations import Classify, FunctionToApply, NetworkOutput
from workers.preprocess import crop

BATCH = 8


@pytest.mark.parametrize(("precision", "tolerance"), [("fp32", 2e-3), ("auto", 0.05)])
def test_folders_on_a_gpu_give_the_vectors_of_the_cpu(
    tmp_path: Path, precision: str, tolerance: float
) -> None:
    folders = {name: save(name, tmp_path) for name in OWN}
    settings = Settings.model_validate(
        {"networks": ",".join(map(str, folders.values())), "precision": precision}
    )
    on_gpu = load_models(
        settings,
        "cuda:0",
        lambda spec, state: GraphedNetwork(state, settings.precision, spec, BATCH, "cuda:0"),
    )
    on_cpu = load_models(
        settings, "cpu", lambda spec, state: CpuNetwork(state, Precision.FP32, spec)
    )
    engine = CudaEngine([each.network for each in on_gpu], BATCH, MAX_PIXELS, "cuda:0")
    engine.warm_up()
    random = np.random.default_rng(5)
    sizes = [(1, 1), (40, 300), (500, 333), (900, 70)]
    sources: list[Source] = [as_jpeg(data) for data in photos()[:3]]
    sources += [Image(random.integers(0, 256, (*size, 3), np.uint8)) for size in sizes]
    try:
        for loaded in on_cpu:
            name, made = loaded.served.name, loaded.network
            crops = np.stack([crop(pixels_of(each), made.spec.preprocessing) for each in sources])
            wanted = {NetworkOutput.EMBEDDING: made.features(crops)}
            if network(name).num_classes:
                wanted[NetworkOutput.LOGITS] = made.logits(crops)
            for output, expected in wanted.items():
                found = runner(engine)(Classify(network=name, output=output), sources).values
                for vector, row in zip(found, expected, strict=True):
                    assert isinstance(vector, Vector)
                    assert np.abs(vector.values - row).max() <= tolerance * np.abs(row).max()
            whole = flatten(pixels_of(sources[0])).pixels
            timm_s = evaluated(name, folders[name], whole)
            row = wanted.get(NetworkOutput.LOGITS, wanted[NetworkOutput.EMBEDDING])[0]
            assert np.abs(row - timm_s).max() <= 1e-4 * max(1, np.abs(timm_s).max())
            if NetworkOutput.LOGITS in wanted:
                operation = Classify(2, FunctionToApply.NONE, network=name)
                (labels,) = runner(engine)(operation, sources[:1]).values
                assert isinstance(labels, Labels)
                best = np.sort(row)[::-1][:2]
                assert np.abs(np.array(labels.scores) - best).max() <= tolerance * abs(best).max()
    finally:
        engine.close()
