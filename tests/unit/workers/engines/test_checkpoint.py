import os
import tempfile
from argparse import Namespace
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import Tensor

from models.networks.registry import RESNET34
from workers.engines.model import State, load_state, random_state

N_CLASSES = 5


@pytest.fixture(scope="module")
def whole() -> State:
    return random_state(3, N_CLASSES)


@pytest.fixture
def state(whole: State) -> State:
    """Return a copy that each test may change."""
    return {name: tensor.clone() for name, tensor in whole.items()}


@pytest.fixture
def folder() -> Iterator[Path]:
    """Return a folder that is emptied after each test: a network takes 45 MB."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


@pytest.fixture(scope="module", params=["own.pth", "own.safetensors"])
def good(request: pytest.FixtureRequest, whole: State) -> Iterator[Path]:
    """Return a file without any error."""
    with tempfile.TemporaryDirectory() as name:
        yield saved(whole, Path(name) / request.param)


def saved(state: Any, path: Path) -> Path:
    if path.suffix == ".safetensors":
        safetensors.torch.save_file(state, path)
    else:
        torch.save(state, path)
    return path


def same(a: State, b: State) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def test_what_was_saved_is_what_is_opened(good: Path, whole: State) -> None:
    assert same(load_state(good, N_CLASSES), whole)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("own.pth", torch.float16),
        ("own.pth", torch.bfloat16),
        ("own.safetensors", torch.float16),
        ("own.safetensors", torch.float64),
    ],
)
def test_other_precisions_become_fp32_with_the_same_values(
    folder: Path, whole: State, name: str, dtype: torch.dtype
) -> None:
    def converted(tensor: Tensor) -> Tensor:
        return tensor.to(dtype) if tensor.is_floating_point() else tensor

    other = {name: converted(tensor) for name, tensor in whole.items()}
    opened = load_state(saved(other, folder / name), N_CLASSES)
    assert opened["conv1.weight"].dtype == torch.float32
    assert torch.equal(opened["conv1.weight"], other["conv1.weight"].float())


def test_older_files_without_batch_counters_are_opened(folder: Path, state: State) -> None:
    older = {name: t for name, t in state.items() if not name.endswith("num_batches_tracked")}
    assert len(older) == 102
    assert same(load_state(saved(older, folder / "old.pth"), N_CLASSES), state)


def test_as_many_labels_as_classes_are_required(good: Path) -> None:
    with pytest.raises(ValueError, match="has 5 classes, but there are 4 labels"):
        load_state(good, N_CLASSES - 1)


def test_another_architecture_is_refused_by_its_first_differences(folder: Path) -> None:
    other = {"features.0.weight": torch.zeros(64, 3, 3, 3)}
    with pytest.raises(
        ValueError,
        match=r"other\.pth does not hold the weights of torchvision's resnet18: "
        r"conv1\.weight is missing; bn1\.weight is missing; bn1\.bias is missing and \d+ more",
    ):
        load_state(saved(other, folder / "other.pth"), N_CLASSES)


def test_a_wrong_tensor_is_refused_by_name(folder: Path) -> None:
    for spoilt, problem in [
        (torch.zeros(64, 3, 3, 3), r"is \(64, 3, 3, 3\) instead of \(64, 3, 7, 7\)"),
        (torch.zeros(64, 3, 7, 7, dtype=torch.int32), "is torch.int32, not floating point"),
        (torch.full((64, 3, 7, 7), torch.nan), "has values that are not finite"),
        (torch.zeros(64, 3, 7, 7).to_sparse(), "is not a plain tensor"),
        (torch.zeros(64, 3, 7, 7, device="meta"), "is not a plain tensor"),
    ]:
        path = saved({"conv1.weight": spoilt}, folder / "own.pth")
        with pytest.raises(ValueError, match=f"conv1.weight {problem}"):
            load_state(path, N_CLASSES)


class Payload:
    """Leave a mark if a pickle of this object is executed."""

    def __init__(self, function: Callable[[Path], object], mark: Path) -> None:
        self.function, self.mark = function, mark

    def __reduce__(self) -> tuple[Any, ...]:
        return self.function, (self.mark,)


@pytest.mark.parametrize("function", [Path.touch, os.mkdir])
def test_code_in_a_file_is_refused_and_never_run(
    folder: Path, function: Callable[[Path], object]
) -> None:
    mark = folder / "mark"
    path = saved({"conv1.weight": Payload(function, mark)}, folder / "evil.pth")
    with pytest.raises(ValueError, match=r"holds more than tensors.* is refused"):
        load_state(path, N_CLASSES)
    assert not mark.exists()


@pytest.mark.parametrize("cut", [0, 7, 100_000])
def test_a_cut_file_is_refused(good: Path, folder: Path, cut: int) -> None:
    path = folder / good.name
    path.write_bytes(good.read_bytes()[:cut])
    with pytest.raises(ValueError, match=f"{good.name} is (damaged|not a safetensors file)"):
        load_state(path, N_CLASSES)


@pytest.mark.parametrize("prefix", ["", "module.", "_orig_mod.module.", "model."])
@pytest.mark.parametrize("name", ["state_dict", "model", "state_dict_ema"])
def test_a_checkpoint_of_a_training_is_opened(
    folder: Path, state: State, name: str, prefix: str
) -> None:
    wrapped = {f"{prefix}{name}": tensor for name, tensor in state.items()}
    worse = {"state_dict": {}, name: wrapped} if name.endswith("ema") else {name: wrapped}
    given = {"epoch": 3, "args": Namespace(lr=0.1, opt="sgd"), "optimizer": {"state": {}}, **worse}
    assert same(load_state(saved(given, folder / "best.pth.tar"), N_CLASSES), state)


def test_the_weights_of_another_network_are_recognised(folder: Path) -> None:
    other = random_state(3, N_CLASSES, RESNET34)
    with pytest.raises(ValueError, match="weights of resnet34, not of resnet18: set DARKROOM_NET"):
        load_state(saved(other, folder / "own.pth"), N_CLASSES)


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_a_program_is_recognised_and_not_run(folder: Path) -> None:
    class Doubling(torch.nn.Module):
        def forward(self, given: Tensor) -> Tensor:
            return given * 2

    torch.jit.script(Doubling()).save(str(folder / "own.pt"))
    with pytest.raises(ValueError, match="is a program of TorchScript, which is not run"):
        load_state(folder / "own.pt", N_CLASSES)
