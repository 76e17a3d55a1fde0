"""Arrays in `.npy` and TIFF files: tiles give the samples of the whole image, 16 bits too."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
from numpy.typing import NDArray
from scipy import ndimage

from app.bulk import arrays
from app.cli.parser import run
from models.exit_codes import ExitCode
from workers.filters.registry import parse_chain
from workers.filters.short_form import parse_short

CHAINS = (
    "gaussian_blur:sigma=3,sobel,invert",
    "median:size=7,morphology:op=open,grayscale",
    "guided:radius=4",
    "levels:in_black=20,gamma=1.7,box_blur:radius=9",
)


def filtered(folder: Path, array: NDArray[Any], *words: str) -> tuple[int, Path]:
    source, made = folder / "a.npy", folder / "b.npy"
    np.save(source, array)
    return run(["filter", str(source), "-o", str(made), *words]), made


@pytest.mark.parametrize("shape", [(150, 131), (90, 170, 3), (97, 64, 4)])
@pytest.mark.parametrize("ops", CHAINS)
def test_tiles_give_the_samples_of_the_whole_image(
    ops: str, shape: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    array = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    monkeypatch.setattr(arrays, "SIDE", 40)
    code, made = filtered(tmp_path, array, "--ops", ops)
    assert code == ExitCode.OK
    pixels = array.reshape(*shape[:2], -1)
    for each in parse_chain(parse_short(ops)):
        pixels = each.apply(pixels)
    assert np.array_equal(np.load(made).reshape(pixels.shape), pixels)


@pytest.mark.parametrize(
    ("ops", "reference", "most"),
    [
        ("gaussian_blur:sigma=2.5", lambda x: ndimage.gaussian_filter(x, 2.5, mode="nearest"), 1),
        ("box_blur:radius=3", lambda x: ndimage.uniform_filter(x, 7, mode="nearest"), 1),
        ("gamma:gamma=0.5", lambda x: 65535 * (x / 65535) ** 0.5, 0.5),
        ("levels:in_black=51,in_white=204", lambda x: (x - 51 * 257) / 0.6, 0.5),
        ("invert", lambda x: 65535 - x, 0),
    ],
)
def test_16_bits_are_filtered_at_their_depth(
    ops: str, reference: Any, most: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    array = np.random.default_rng(1).integers(0, 65536, (120, 90), np.uint16)
    monkeypatch.setattr(arrays, "SIDE", 50)
    code, made = filtered(tmp_path, array, "--ops", ops)
    assert code == ExitCode.OK
    expected = np.clip(reference(array.astype(np.float64)), 0, 65535)
    assert np.abs(np.load(made) - expected).max() <= most + 1e-6


@pytest.mark.parametrize("shape", [(90, 70), (80, 60, 3), (70, 90, 4)])
def test_a_tiff_is_filtered_as_the_same_array(
    shape: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrays, "SIDE", 40)
    array = np.random.default_rng(2).integers(0, 65536, shape, "u2")
    source, made = tmp_path / "a.tif", tmp_path / "c.tiff"
    kind = "minisblack" if len(shape) == 2 else "rgb"
    tifffile.imwrite(source, array.astype(">u2"), byteorder=">", photometric=kind)
    assert run(["filter", str(source), "-o", str(made), "--op", "gamma:gamma=2"]) == ExitCode.OK
    _, same = filtered(tmp_path, array, "--op", "gamma:gamma=2")
    assert np.array_equal(tifffile.imread(made), np.load(same))
    assert not arrays.are_arrays([str(source)], "c.png")  # an image, as before


def test_a_tiff_that_cannot_be_mapped_is_wrong_usage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    grey = np.zeros((9, 9), "u1")
    tifffile.imwrite(tmp_path / "packed.tif", grey, compression="zlib")
    tifffile.imwrite(tmp_path / "inverse.tif", grey, photometric="miniswhite")
    (tmp_path / "none.tif").write_bytes(b"none")
    for source in (*tmp_path.glob("*.tif"), tmp_path / "missing.tif"):
        made = tmp_path / "made.tiff"
        assert run(["filter", str(source), "-o", str(made), "--op", "invert"]) == 2
        assert "without compression" in capsys.readouterr().err or source.name == "missing.tif"
        assert not made.exists()


@pytest.mark.parametrize(
    ("dtype", "shape", "words", "message"),
    [
        ("u1", (9, 9), ["--op", "equalize"], "equalize depends on the whole image"),
        ("u1", (9, 9), ["--op", "resize:width=4"], "resize depends on the whole image"),
        ("u2", (9, 9), ["--op", "sobel"], "sobel has no definition for 16 bits; levels, gamma"),
        ("u2", (9, 9, 4), ["--op", "box_blur"], "without alpha only"),
        ("f4", (9, 9), ["--op", "invert"], "uint8 or uint16"),
        ("u1", (9, 9, 2), ["--op", "invert"], "uint8 or uint16"),
        ("u1", (9,), ["--op", "invert"], "uint8 or uint16"),
        ("u1", (9, 9), ["--op", "invert", "--quality", "4"], "--quality has no meaning"),
        ("u1", (9000, 9000, 4), ["--ops", ",".join(["box_blur:radius=500"] * 9)], "smaller"),
    ],
)
def test_what_tiles_cannot_give_is_wrong_usage(
    dtype: str,
    shape: tuple[int, ...],
    words: list[str],
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    np.lib.format.open_memmap(tmp_path / "a.npy", "w+", dtype, shape)  # holes, not zeros
    path = str(tmp_path / "a.npy")
    assert run(["filter", path, "-o", f"{path}.npy", *words]) == ExitCode.WRONG_USAGE
    assert message in capsys.readouterr().err
    assert [each.name for each in tmp_path.iterdir()] == ["a.npy"]
