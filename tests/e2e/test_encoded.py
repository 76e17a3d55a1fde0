"""JPEGs that go to the worker encoded, as they do where a GPU decodes them; here a CPU does."""

from collections.abc import Iterator, Sequence

import httpx
import pytest

from models.domain.job import Job
from tests.e2e.conftest import Running, Start
from tests.pictures import jpeg
from workers.engines.cpu.engine import CpuEngine, CpuSlot

JPEG = {"content-type": "image/jpeg"}
CANARY = (64, 64)


@pytest.fixture(scope="module")
def encoded(start: Start) -> Iterator[tuple[Running, list[str]]]:
    """Start a server whose engine asks for JPEGs; yield it, and the types of images that the engine
    was given.
    """
    seen: list[str] = []
    launch = CpuEngine.launch

    def noting(self: CpuEngine, slot: CpuSlot, jobs: Sequence[Job]) -> None:
        images = [job.image for job in jobs]
        seen.extend(type(i).__name__ for i in images if (i.height, i.width) != CANARY)
        launch(self, slot, jobs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CpuEngine, "takes_jpegs", True)
        patch.setattr(CpuEngine, "launch", noting)
        with start() as running:
            seen.clear()
            yield running, seen


def answer(response: httpx.Response) -> object:
    assert response.status_code == 200, response.text
    if response.headers["content-type"] == "application/json":
        return response.json()["results"][0]["predictions"]
    return response.content


@pytest.mark.parametrize("path", ["/classify", "/filter?name=sobel&format=png"])
def test_answers_are_those_of_images_decoded_at_the_door(
    encoded: tuple[Running, list[str]], monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    running, seen = encoded
    seen.clear()
    there = answer(running.client.post(path, content=jpeg(), headers=JPEG))
    monkeypatch.setattr(CpuEngine, "takes_jpegs", False)
    here = answer(running.client.post(path, content=jpeg(), headers=JPEG))
    assert there == here
    assert seen == ["Jpeg", "Image"]
