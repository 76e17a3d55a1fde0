"""Arrays in `.npy`, TIFF and PNG files: tiles give the samples of the whole image, 16 bits too."""

import struct
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import tifffile
from numpy.typing import NDArray
from PIL import Image, ImageCms
from scipy import ndimage

from app.bulk import arrays
from app.cli.parser import run
from models.exit_codes import ExitCode
from tests.hostile import chunk, large_tile
from workers.filters import geometry
from workers.filters.registry import parse_chain
from workers.filters.short_form import parse_short

CHAINS = (
    "gaussian_blur:sigma=3,sobel,invert",
    "median:size=7,morphology:op=open,grayscale",
    "guided:radius=4",
    "levels:in_black=20,gamma=1.7,box_blur:radius=9",
)


TILED = ("--max-pixels", "1")  # other arrays of this size are filtered whole


def filtered(folder: Path, array: NDArray[Any], *words: str) -> tuple[int, Path]:
    source, made = folder / "a.npy", folder / "b.npy"
    np.save(source, array)
    return run(["filter", str(source), "-o", str(made), *words]), made


@pytest.mark.parametrize("shape", [(150, 131), (90, 170, 3), (97, 64, 4)])
@pytest.mark.parametrize("ops", [*CHAINS, "equalize,resize:width=50,trim,round_corners"])
def test_tiles_and_whole_arrays_have_the_samples_of_the_image(
    ops: str, shape: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    array = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    monkeypatch.setattr(arrays, "SIDE", 40)
    code, made = filtered(tmp_path, array, "--ops", ops, *(TILED if ops in CHAINS else ()))
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
        ("box_blur:radius=140", lambda x: ndimage.uniform_filter(x, 281, mode="nearest"), 1),
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
    code, made = filtered(tmp_path, array, "--ops", ops, *TILED)
    assert code == ExitCode.OK
    expected = np.clip(reference(array.astype(np.float64)), 0, 65535)
    assert np.abs(np.load(made) - expected).max() <= most + 1e-6


KERNELS: dict[str, tuple[int, Any]] = {
    "bilinear": (1, lambda x: 1 - x),
    "lanczos": (3, lambda x: np.sinc(x) * np.sinc(x / 3)),
}


def weights(n: int, size: int, method: str) -> NDArray[np.float64]:
    support, kernel = KERNELS[method]
    places = np.arange(n) + 0.5 - n / size * (np.arange(size)[:, None] + 0.5)
    x = np.abs(places) / max(1, n / size)
    found = np.where(x < support, kernel(x), 0)
    normal: NDArray[np.float64] = found / found.sum(1, keepdims=True)
    return normal


@pytest.mark.parametrize("stripe", [1 << 20, 64])
@pytest.mark.parametrize("method", KERNELS)
def test_a_resize_of_16_bits_is_the_weighted_mean(
    method: str, stripe: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(geometry, "STRIPE", stripe)
    monkeypatch.setattr(geometry, "LARGE", 8 * stripe)
    words = ["--op", f"resize:width=37,height=200,fit=fill,method={method}", "--force"]
    array = np.random.default_rng(3).integers(0, 65536, (120, 90, 3), np.uint16)
    code, made = filtered(tmp_path, array, *words)
    assert code == ExitCode.OK
    rows, columns = weights(120, 200, method), weights(90, 37, method)
    exact = np.einsum("yr,rcn,xc->yxn", rows, array, columns, optimize=True)
    assert np.abs(np.load(made) - np.clip(exact, 0, 65535)).max() <= 1
    levels = np.clip(array // 257, 64, 192).astype(np.uint8)  # no sample overshoots
    filtered(tmp_path, levels, *words)
    shallow = np.load(made)
    filtered(tmp_path, levels * np.uint16(257), *words)
    assert np.abs(np.rint(np.load(made) / 257) - shallow).max() <= 1


@pytest.mark.parametrize(
    ("op", "moved"),
    [
        ("crop:left=3,top=5,width=20", lambda a: a[5:, 3:23]),
        ("flip", lambda a: a[:, ::-1]),
        ("rotate90:turns=1", lambda a: np.rot90(a, -1)),
        ("trim", lambda a: a[2:-2, 2:-2]),
        ("resize:width=80,method=nearest", lambda a: a.repeat(2, 0).repeat(2, 1)),
    ],
)
def test_samples_of_16_bits_move_unchanged(op: str, moved: Any, tmp_path: Path) -> None:
    array = np.pad(np.random.default_rng(4).integers(9000, 65536, (50, 36), np.uint16), 2)
    code, made = filtered(tmp_path, array, "--op", op)
    assert code == ExitCode.OK
    assert np.array_equal(np.load(made), moved(array))


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_a_png_keeps_16_bits_and_its_profile(
    channels: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    array = np.random.default_rng(5).integers(0, 65536, (40, 30, channels), np.uint16)
    order = [2, 1, 0, 3][:channels] if channels > 1 else [0]  # OpenCV's
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    metadata = {cv2.IMAGE_METADATA_ICCP: np.frombuffer(profile, np.uint8)} if channels > 1 else {}
    source, packed = tmp_path / "a.png", tmp_path / "packed.tif"
    cv2.imwriteWithMetadata(str(source), array[..., order], [*metadata], [*metadata.values()])
    cv2.imwrite(str(packed), array[..., order])  # by LZW
    for given, name in ((source, "b.png"), (source, "b.tif"), (source, "b.npy"), (packed, "c.npy")):
        made = str(tmp_path / name)
        words = ["--op", "flip", "--depth", "16", "-o", made]
        assert run(["filter", str(given), *words]) == ExitCode.OK
        lacks = "lacks the colour profile" in capsys.readouterr().err
        assert lacks == (name == "b.npy" and channels > 1)
        if name.endswith("npy"):
            assert np.array_equal(np.load(made).reshape(array.shape), array[:, ::-1])
            continue
        found: Any = cv2.imread(made, cv2.IMREAD_UNCHANGED)
        assert np.array_equal(found.reshape(array.shape)[..., order], array[:, ::-1])
        with Image.open(made) as image:
            assert image.info.get("icc_profile") == (profile if metadata else None)


def test_a_png_that_has_no_16_bits_to_keep_is_wrong_usage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    deep = np.random.default_rng(6).integers(0, 65536, (40, 30), np.uint16)
    data = cv2.imencode(".png", deep)[1].tobytes()
    large, huge = (
        data[:8] + chunk(b"IHDR", struct.pack(">2I5B", side, side, 16, 2, 0, 0, 0)) + data[33:]
        for side in (9000, 30_000)
    )
    files = {
        "no samples of 16 bits": cv2.imencode(".png", deep.astype(np.uint8))[1].tobytes(),
        "damaged": data[: len(data) // 2],
        "81,000,000 pixels are more": large,
        "(900000000 pixels) exceeds limit": huge,
        "cannot identify": b"none",
        "transparent": data[:33] + chunk(b"tRNS", b"\0\1") + data[33:],
    }
    source = tmp_path / "a.png"
    for message, content in files.items():
        source.write_bytes(content)
        words = ["--op", "invert", "--depth", "16", "-o", str(tmp_path / "b.png")]
        assert run(["filter", str(source), *words]) == ExitCode.WRONG_USAGE
        assert message in capsys.readouterr().err
    assert [*tmp_path.iterdir()] == [source]


@pytest.mark.parametrize("shape", [(90, 70), (80, 60, 3), (70, 90, 4)])
def test_a_tiff_is_filtered_as_the_same_array(
    shape: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrays, "SIDE", 40)
    array = np.random.default_rng(2).integers(0, 65536, shape, "u2")
    source, made = tmp_path / "a.tif", tmp_path / "c.tiff"
    kind = "minisblack" if len(shape) == 2 else "rgb"
    tifffile.imwrite(source, array.astype(">u2"), byteorder=">", photometric=kind)
    for flags in ((), TILED):
        words = ["--op", "gamma:gamma=2", "--force", *flags]
        assert run(["filter", str(source), "-o", str(made), *words]) == ExitCode.OK
        _, same = filtered(tmp_path, array, *words)
        assert np.array_equal(tifffile.imread(made), np.load(same))
    assert not arrays.are_arrays([str(source)], "c.png")  # an image, as before


def test_a_tiff_that_cannot_be_mapped_is_wrong_usage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    grey = np.zeros((9, 9), "u1")
    tifffile.imwrite(tmp_path / "packed.tif", grey, compression="zlib")
    tifffile.imwrite(tmp_path / "inverse.tif", grey, photometric="miniswhite")
    deep, turned = grey.astype("u2"), [(274, 3, 1, 3, True)]
    tifffile.imwrite(tmp_path / "turned.tif", deep, compression="zlib", extratags=turned)
    (tmp_path / "none.tif").write_bytes(b"none")
    (tmp_path / "tile.tif").write_bytes(large_tile(64, 8192, 1, 16))
    reasons = {"missing": "No such file", "tile": "67,108,864 pixels are more"}
    for source in (*tmp_path.glob("*.tif"), tmp_path / "missing.tif"):
        made = tmp_path / "made.tiff"
        assert run(["filter", str(source), "-o", str(made), "--op", "invert"]) == 2
        assert reasons.get(source.stem, "without compression") in capsys.readouterr().err
        assert not made.exists()


@pytest.mark.parametrize(
    ("dtype", "shape", "words", "message"),
    [
        ("u1", (9, 9), ["--op", "equalize", *TILED], "equalize depends on the whole image"),
        ("u2", (9, 9), ["--op", "resize:width=4", *TILED], "resize depends on the whole image"),
        ("u1", (9, 9), ["--op", "invert", "--depth", "16"], "has 8 bits a sample"),
        ("u1", (9, 9), ["--op", "overlay"], "overlay needs a picture"),
        ("u2", (9, 9), ["--op", "sobel"], "sobel has no definition for 16 bits; levels, gamma"),
        ("u2", (9, 9, 4), ["--op", "box_blur"], "without alpha only"),
        ("f4", (9, 9), ["--op", "invert"], "uint8 or uint16"),
        ("u1", (9, 9, 2), ["--op", "invert"], "uint8 or uint16"),
        ("u1", (9,), ["--op", "invert"], "uint8 or uint16"),
        ("u1", (9, 9), ["--op", "invert", "--quality", "4"], "--quality has no meaning"),
        ("u1", (12000, 12000, 4), ["--ops", ",".join(["box_blur:radius=500"] * 9)], "smaller"),
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
