"""Real labels over HTTP, from the bundled weights: right, and never another image's."""

import random
import tarfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import PurePath

import httpx
import numpy as np
import pytest

from models import codec
from models.networks.registry import BUNDLED, RESNET18
from models.settings import Precision
from tests.drawn_classes import DRAWN
from tests.e2e.conftest import Running, Start
from tests.pictures import as_image, encoded, jpeg
from tests.shared import IMAGENETTE, content
from workers.engines.cpu.network import CpuNetwork
from workers.engines.model import load_state
from workers.preprocess import crop

PHOTOS_TRIED = 80
RAW = {"Content-Type": "application/octet-stream"}


@pytest.fixture(scope="module")
def labelled(start: Start) -> Iterator[Running]:
    with start(weights="bundled", precision="fp32") as running:
        yield running


def offline(files: list[bytes]) -> list[int]:
    """Return the best class of each file, without a service: one image at a time."""
    network = CpuNetwork(load_state(BUNDLED.path, 10), Precision.FP32, RESNET18)
    images = (as_image(codec.decode(file, max_pixels=10**7).image) for file in files)
    return [int(network.logits(crop(i, RESNET18.preprocessing)[None]).argmax()) for i in images]


def best(client: httpx.Client, file: bytes) -> dict[str, object]:
    reply = client.post("/classify?top_k=1", content=file, headers=RAW)
    assert reply.status_code == 200, reply.text
    found: dict[str, object] = reply.json()["results"][0]["predictions"][0]
    return found


def test_a_drawing_gets_the_label_it_deserves(labelled: Running) -> None:
    for label in DRAWN:
        found = best(labelled.client, encoded(DRAWN[label](), quality=92))
        assert found["label"] == label
        assert float(str(found["score"])) > 0.5


def test_no_answer_goes_to_another_image_whatever_the_order(labelled: Running) -> None:
    """All orders of requests and of images within them; scores tell the images apart."""
    files = [jpeg(seed, 200, 150) for seed in range(12)]
    expected = [best(labelled.client, file) for file in files]
    assert len({str(e["score"]) for e in expected}) == len(files)
    shuffled = random.Random(0)

    def ask(order: list[int]) -> None:
        uploads = [("files", (str(n), files[n])) for n in order]
        reply = labelled.client.post("/classify?top_k=1", files=uploads)
        for n, record in zip(order, reply.json()["results"], strict=True):
            (found,) = record["predictions"]
            assert record["source"] == str(n)
            assert found["class_id"] == expected[n]["class_id"]
            assert found["score"] == pytest.approx(expected[n]["score"], abs=1e-5)

    orders = [shuffled.sample(range(len(files)), shuffled.randint(1, 12)) for _ in range(5)]
    with ThreadPoolExecutor(3) as clients:  # all from one address: a busy host refuses more
        list(clients.map(ask, orders))


@pytest.mark.skipif(not IMAGENETTE.is_dir(), reason="no ../shared/data/imagenette here")
def test_photos_never_trained_on_are_labelled_right_and_as_they_are_offline(
    labelled: Running,
) -> None:
    with tarfile.open(IMAGENETTE / "val.tar") as tar:
        members = [m for m in tar if m.isfile()]
        chosen = [members[n] for n in np.linspace(0, len(members) - 1, PHOTOS_TRIED, dtype=int)]
        files = [content(tar, member) for member in chosen]
    with ThreadPoolExecutor(8) as clients:
        found = list(clients.map(lambda file: best(labelled.client, file), files))
    assert [f["class_id"] for f in found[::2]] == offline(files[::2])
    right = [f["wnid"] == PurePath(m.name).parts[1] for f, m in zip(found, chosen, strict=True)]
    assert sum(right) >= 0.9 * PHOTOS_TRIED
