"""Outputs of a network on the GPU, as the engine takes them apart, in the memory of the CPU."""

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import torch

from models.domain.image import Image, NetworkInput
from models.domain.job import Job, Labels, Vector
from models.networks.registry import RESNET34
from tests.emulation.staging import EmulatedKernels, NoStreams, staging_slot
from workers.engines.cuda.classifying import Classifying, Cropper
from workers.engines.cuda.network import GraphedNetwork
from workers.engines.cuda.slot import GpuSlot, Outputs, Streams
from workers.operations import Classify, FunctionToApply, NetworkOutput

BATCH, CLASSES, FEATURES = 4, 5, 3
CPU = torch.device("cpu")


class FakeNetwork:
    """Logits and features made of the first level of each crop, sorted as a graph sorts them."""

    spec = RESNET34

    def __init__(self) -> None:
        self.input = torch.zeros((BATCH, 224, 224, 3), dtype=torch.int16)
        self.scores = torch.zeros((BATCH, 3, CLASSES))
        self.vectors = torch.zeros((BATCH, FEATURES))
        self.runs = 0

    def run(self, n: int) -> None:
        self.runs += 1
        first = self.input[:n, 0, 0, 0].float()[:, None]
        logits = (first + torch.arange(CLASSES) * 7) % 11
        best, classes = logits.sort(dim=1, descending=True, stable=True)
        self.scores[:n] = torch.stack((best, classes.float(), best.softmax(1)), 1)
        self.vectors[:n] = self.input[:n, 0, 0, 0].float()[:, None] + torch.arange(FEATURES)


def answered(operation: Classify, levels: Sequence[int]) -> tuple[list[Any], FakeNetwork]:
    """Return the answers for grey images of these levels, and the network that gave them."""
    network = FakeNetwork()
    table = torch.arange(256, dtype=torch.int16).repeat_interleave(3).view(256, 3).contiguous()
    cropper = Cropper(EmulatedKernels(), RESNET34.preprocessing, table)
    classifying = Classifying(cast(GraphedNetwork, network), cropper, cast(Streams, NoStreams()))
    slot: GpuSlot = staging_slot(1 << 20)
    slot.outputs = {"resnet34": Outputs(BATCH, CLASSES, FEATURES, CPU)}
    images = [Image(np.full((40, 30, 3), level, np.uint8)) for level in levels]
    jobs = [Job(operation, image) for image in images]
    classifying.launch(slot, jobs)
    return [*classifying.results(slot, jobs)], network


def test_logits_come_back_in_class_order_from_the_pass_for_labels() -> None:
    operation = Classify(network="resnet34", output=NetworkOutput.LOGITS)
    found, network = answered(operation, [3, 9, 20])
    for vector, level in zip(found, [3, 9, 20], strict=True):
        assert isinstance(vector, Vector)
        expected = (level + np.arange(CLASSES) * 7) % 11
        assert vector.values.tolist() == expected.tolist()
    assert network.runs == 1


def test_embeddings_are_copied_out_of_the_slot() -> None:
    operation = Classify(network="resnet34", output=NetworkOutput.EMBEDDING)
    (found, _), network = answered(operation, [3, 9])
    assert isinstance(found, Vector)
    assert found.values.tolist() == [3, 4, 5]
    assert found.values.base is None
    assert network.runs == 1


def test_labels_are_the_best_classes_as_before() -> None:
    operation = Classify(2, FunctionToApply.NONE, network="resnet34")
    (found,), network = answered(operation, [3])
    assert found == Labels((1, 4), (10.0, 9.0))
    assert network.runs == 1


class HalfNetwork(FakeNetwork):
    """A network whose input has half precision, channels last."""

    def __init__(self) -> None:
        super().__init__()
        crop = RESNET34.preprocessing.crop
        lying = torch.zeros((BATCH, crop, crop, 3), dtype=torch.float16)
        self.input = lying.permute(0, 3, 1, 2)


def test_inputs_that_were_preprocessed_are_copied_in_their_order_and_precision() -> None:
    network = HalfNetwork()
    cropper = cast(Cropper, None)  # nothing is cropped
    classifying = Classifying(cast(GraphedNetwork, network), cropper, cast(Streams, NoStreams()))
    slot: GpuSlot = staging_slot(1 << 21)
    slot.outputs = {"resnet34": Outputs(BATCH, CLASSES, FEATURES, CPU)}
    values = np.random.default_rng(5).normal(0, 1, (3, 3, 224, 224)).astype(np.float32)
    operation = Classify(network="resnet34", preprocessed=True)
    jobs = [Job(operation, NetworkInput(each)) for each in values]
    classifying.launch(slot, jobs)
    assert torch.equal(network.input[:3], torch.from_numpy(values).half())
    assert network.runs == 1
    assert len(classifying.results(slot, jobs)) == 3
