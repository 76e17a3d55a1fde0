"""The bundled weights on Imagenette's 1,934 validation photos, over HTTP and without a service.

Method. A real server process with `--weights bundled` gets every photo as a raw body, eight at a
time; the same photos go one by one through decode, preprocessing and the network, in fp32, in this
process. Shown are the share of right labels by class, the confusion matrix, how many best labels
differ between the two (in `fp32` none may; `auto` may differ where scores are close), and the time
to verify and open the weights. Needs ../shared/data. Run: python -m tests.bench.accuracy
[--precision fp32]
"""

import argparse
import json
import tarfile
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import numpy as np

from models import codec
from models.labels import shipped
from models.networks.registry import BUNDLED, RESNET18
from models.settings import Precision
from tests.pictures import as_image
from tests.server import serving
from tests.shared import IMAGENETTE, content
from workers.engines.cpu.network import CpuNetwork
from workers.engines.model import load_state
from workers.preprocess import crop
from workers.weights_store import verified_sha256


def photos() -> tuple[list[bytes], list[str]]:
    """Return the files of the validation set and the wnid of each."""
    with tarfile.open(IMAGENETTE / "val.tar") as tar:
        members = [m for m in tar if m.isfile()]
        files = [content(tar, member) for member in members]
    return files, [m.name.split("/")[1] for m in members]


def over_http(files: list[bytes], precision: str) -> np.ndarray:
    """Return the index of the best class of each file, as a server answers it."""
    flags = ("--weights", "bundled", "--precision", precision, "--log-level", "warning")
    kind = {"Content-Type": "application/octet-stream"}
    with serving(*flags) as server, httpx.Client(timeout=60) as client:
        url = f"http://127.0.0.1:{server.port}/classify?top_k=1"

        def one(file: bytes) -> int:
            reply = client.post(url, content=file, headers=kind).raise_for_status()
            return int(reply.json()["results"][0]["predictions"][0]["class_id"])

        with ThreadPoolExecutor(8) as clients:
            return np.array(list(clients.map(one, files)))


def main() -> None:
    """Run the command line."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--precision", default="fp32", choices=[p.value for p in Precision])
    precision = arguments.parse_args().precision
    start = time.perf_counter()
    verified_sha256(BUNDLED.path, BUNDLED.sha256)
    state = load_state(BUNDLED.path, 10)
    opened = time.perf_counter() - start
    files, wnids = photos()
    labels = shipped(BUNDLED.label_set)
    truth = np.array([labels.wnids.index(wnid) for wnid in wnids])
    network = CpuNetwork(state, Precision.FP32, RESNET18)
    images = (as_image(codec.decode(file, max_pixels=10**7).image) for file in files)
    crops = (crop(image, RESNET18.preprocessing) for image in images)
    offline = np.array([network.logits(each[None]).argmax() for each in crops])
    found = over_http(files, precision)
    confusion = np.zeros((10, 10), int)
    np.add.at(confusion, (truth, found), 1)
    print("rows: what it is; columns: what was said")
    for label, row in zip(labels.labels, confusion, strict=True):
        print(f"{label:18}" + "".join(f"{n:5}" for n in row))
    by_class = confusion.diagonal() / confusion.sum(1)
    print(
        json.dumps(
            {
                "benchmark": "accuracy",
                "command": f"python -m tests.bench.accuracy --precision {precision}",
                "weights": BUNDLED.sha256,
                "photos": len(files),
                "top1": round(float((found == truth).mean()), 4),
                "top1_offline_fp32": round(float((offline == truth).mean()), 4),
                "labels_unlike_offline": int((found != offline).sum()),
                "by_class": dict(zip(labels.labels, by_class.round(3).tolist(), strict=True)),
                "file_bytes": BUNDLED.path.stat().st_size,
                "verify_and_open_seconds": round(opened, 3),
            }
        )
    )


if __name__ == "__main__":
    main()
