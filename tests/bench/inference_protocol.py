"""Images by the Open Inference Protocol: encoded files against tensors, and what each costs.

One server of this checkout answers forms of requests by turns, in a closed loop: `--rounds` rounds
of `--seconds` for each form. Every image is a photo of 500 × 375, and every answer its best class.

- `classify`: forms of `--each` JPEGs to `/classify`, for comparison.
- `encoded`: `--each` JPEGs as the tensor IMAGE (BYTES).
- `samples`: their decoded samples as PIXELS (UINT8), 562,500 bytes each.
- `inputs`: the network's input as INPUT (FP32), 602,112 bytes each, made as torchvision makes it.

All tensors stand behind the JSON. For each form the result has the images a second,
the CPU milliseconds of all processes of the server for each image, and the bytes of an image. Only
ratios within one run mean something on a busy machine. `sender_cpu_share` is the share of a core
that the load itself took: near 1 it is the limit, not the server.

Run: python -m tests.bench.inference_protocol [--seconds 4] [--rounds 3] [--flags FLAGS]
"""

import argparse
import io
import json
import statistics
import sys

import numpy as np
from numpy.typing import NDArray
from PIL import Image as PillowImage

from models.domain.image import Image
from models.networks.registry import RESNET18
from tests.bench import load
from tests.bench.images import jpegs
from tests.bench.report import report
from tests.bench.subject import Subject, darkroom
from workers.preprocess import crop

PATH = "/v2/models/resnet18/infer"
SIZE = (500, 375)
FILES = 32


def main() -> None:
    """Measure, and print the result as JSON."""
    options = _options()
    forms = _requests(options.each)
    measured: dict[str, list[dict[str, float]]] = {name: [] for name in forms}
    with darkroom("--log-level", "error", *options.flags.split()) as server:
        for number in range(-1, options.rounds):  # the first round warms up, and is not counted
            for name, (requests, images) in forms.items():
                seconds = 1.0 if number < 0 else options.seconds
                found = _measured(server, options.connections, requests, images, seconds)
                if number >= 0:
                    measured[name].append(found)
                    print(name, found, file=sys.stderr)
    medians: dict[str, dict[str, float]] = {}
    for name, rounds in measured.items():
        requests, images = forms[name]
        medians[name] = {
            key: round(statistics.median(each[key] for each in rounds), 3) for key in rounds[0]
        } | {"bytes_per_image": round(statistics.mean(map(len, requests)) / images)}
    report("inference_protocol", forms=medians)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--each", type=int, default=8, help="images of a request")
    parser.add_argument("--connections", type=int, default=4, help="at a time")
    parser.add_argument("--flags", default="", help="flags of `darkroom serve`")
    return parser.parse_args()


def _measured(
    server: Subject, connections: int, requests: list[bytes], images: int, seconds: float
) -> dict[str, float]:
    """Send requests of `images` images each for some seconds; return rate and cost of an image."""
    before = server.all_cpu_seconds()
    report = load.run(server.port, requests, connections, seconds)
    spent = server.all_cpu_seconds() - before
    if report.failures:
        raise RuntimeError(f"{report.failures} requests failed")
    return {
        "images_per_s": round(images * report.per_second, 1),
        "cpu_ms_per_image": round(spent / (images * report.requests) * 1e3, 3),
        "sender_cpu_share": report.generator_cpu_share,
    }


def _requests(each: int) -> dict[str, tuple[list[bytes], int]]:
    """Return the requests of each form, and the number of images in one of them."""
    files = [_resized(data) for data in jpegs(FILES)[1]]
    groups = [files[n : n + each] for n in range(0, len(files) - each + 1, each)]
    return {
        "classify": (load.forms("/classify?top_k=1", files, each), each),
        "encoded": ([_encoded(group) for group in groups], each),
        "samples": ([_tensor("PIXELS", "UINT8", _samples(group)) for group in groups], each),
        "inputs": ([_tensor("INPUT", "FP32", _inputs(group)) for group in groups], each),
    }


def _resized(data: bytes) -> bytes:
    file = io.BytesIO()
    photo = PillowImage.open(io.BytesIO(data)).convert("RGB").resize(SIZE)
    photo.save(file, "JPEG", quality=90, subsampling=2)
    return file.getvalue()


def _samples(files: list[bytes]) -> NDArray[np.uint8]:
    return np.stack([np.asarray(PillowImage.open(io.BytesIO(data))) for data in files])


def _inputs(files: list[bytes]) -> NDArray[np.float32]:
    spec = RESNET18.preprocessing
    crops = np.stack([crop(Image(pixels), spec) for pixels in _samples(files)])
    levels = crops.astype(np.float32) / np.float32(255)
    normalised = (levels - np.asarray(spec.mean, np.float32)) / np.asarray(spec.std, np.float32)
    return np.ascontiguousarray(normalised.transpose(0, 3, 1, 2), np.float32)


def _encoded(files: list[bytes]) -> bytes:
    """Return a request for the best class of each file."""
    raw = b"".join(len(data).to_bytes(4, "little") + data for data in files)
    return _request("IMAGE", "BYTES", [len(files)], raw)


def _tensor(name: str, datatype: str, values: "NDArray[np.generic]") -> bytes:
    return _request(name, datatype, list(values.shape), values.tobytes())


def _request(name: str, datatype: str, shape: list[int], raw: bytes) -> bytes:
    tensor: dict[str, object] = {"name": name, "datatype": datatype, "shape": shape}
    tensor["parameters"] = {"binary_data_size": len(raw)}
    outputs = [{"name": "SCORES", "parameters": {"classification": 1}}]
    head = json.dumps({"inputs": [tensor], "outputs": outputs}).encode()
    length = f"Inference-Header-Content-Length: {len(head)}\r\n"
    return load.raw_post(PATH, head + raw, "application/octet-stream", length)


if __name__ == "__main__":
    main()
