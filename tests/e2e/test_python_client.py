"""The Python client and its examples against a real server."""

import csv
import io
import json
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image as Picture

from darkroom_client import Client
from tests.drawn_classes import DRAWN
from tests.e2e.conftest import Running, Start
from tests.pictures import encoded
from tests.server import ran

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "clients/python/examples"


@pytest.fixture(scope="module")
def labelling(start: Start, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("data")
    presets = folder / "presets.toml"
    presets.write_text('[grey]\nname = "grayscale"\nformat = "png"\n')
    settings = {"max_images_per_request": 8, "data_folder": folder, "presets": presets}
    with start(weights="bundled", **settings) as running:
        yield running


@pytest.fixture(scope="module")
def url(labelling: Running) -> str:
    return f"http://127.0.0.1:{labelling.port}"


@pytest.fixture(scope="module")
def client(url: str) -> Iterator[Client]:
    with Client(url, images_per_request=4) as started:
        yield started


def picture(content: bytes) -> "Picture.Image":
    return Picture.open(io.BytesIO(content))


def test_the_catalogue_is_typed(client: Client) -> None:
    blur = next(each for each in client.filters() if each.name == "gaussian_blur")
    assert "sigma" in blur.parameters
    (network,) = client.models()
    assert (network.network, len(network.classes)) == ("resnet18", 10)
    health = client.health()
    assert (health.ready, health.status) == (True, "ok")
    assert "worker" in health.details


def test_presets_and_pictures_are_arguments(client: Client, photos: Path) -> None:
    photo = photos / "church.jpg"
    grey = client.filter(photo, "grayscale", format="png").content
    assert client.filter(photo, preset="grey").content == grey
    red = encoded(Picture.new("RGB", (3, 2), "red"), "PNG")
    mark = {"name": "overlay", "position": "north_west"}
    marked = client.filter(photo, mark, overlay=red, format="png").content
    assert picture(marked).getpixel((2, 1)) == (255, 0, 0)
    part = encoded(Picture.open(photo).crop((40, 30, 90, 60)), "PNG")
    (found,) = client.match([photo], template=part)[0].matches or []
    assert (found.x, found.y, found.score) == (40, 30, 1)


def example(name: str, *arguments: str | Path) -> str:
    path = {"PYTHONPATH": str(ROOT / "clients/python/src")}
    return ran(sys.executable, EXAMPLES / name, *arguments, environment=path).stdout


def test_the_example_of_an_archive_labels_its_photos_and_makes_another(
    url: str, photos: Path, tmp_path: Path
) -> None:
    archive, out = tmp_path / "photos.zip", tmp_path / "out.zip"
    names = [f"{label.replace(' ', '_')}.jpg" for label in [*DRAWN][:3]]
    with zipfile.ZipFile(archive, "w") as file:
        for name in names:
            file.write(photos / name, f"folder/{name}")
        file.writestr("folder/broken.jpg", b"no image")
    printed = example("filter_archive.py", url, archive, out)
    for label, name in zip(DRAWN, names, strict=False):
        assert f"folder/{name} is a {label}" in printed
    assert "folder/broken.jpg failed:" in printed
    with zipfile.ZipFile(out) as file:
        records = [json.loads(line) for line in file.read("results.jsonl").splitlines()]
        images = [name for name in file.namelist() if name.endswith(".jpg")]
        assert len(images) == len(names)
        assert {picture(file.read(each)).format for each in images} == {"JPEG"}
    assert sorted(each["status"] for each in records) == ["error", "ok", "ok", "ok"]


def test_the_examples_of_a_folder_label_and_filter_each_photo(
    url: str, photos: Path, tmp_path: Path
) -> None:
    example("classify_folder.py", url, photos, tmp_path / "labels.csv")
    with (tmp_path / "labels.csv").open(newline="") as file:
        found = {Path(row["photo"]).stem: row["label"] for row in csv.DictReader(file)}
    assert len(found) == len([*photos.iterdir()])
    assert found["golf_ball"] == "golf ball"
    assert "failed" not in example("filter_folder.py", url, photos, tmp_path)
    assert len([*tmp_path.glob("*.webp")]) == len(found)


def test_the_example_of_embeddings_finds_a_photo(url: str, photos: Path, tmp_path: Path) -> None:
    near = tmp_path / "turned.jpg"
    with Picture.open(photos / "church.jpg") as church:
        near.write_bytes(encoded(church.transpose(Picture.Transpose.FLIP_LEFT_RIGHT), quality=92))
    assert str(photos / "church.jpg") in example("find_similar.py", url, near, photos)


def test_the_asynchronous_example_makes_versions(url: str, photos: Path, tmp_path: Path) -> None:
    printed = example("versions_async.py", url, tmp_path, photos / "golf_ball.jpg")
    assert "ok golf ball" in printed
    names = sorted(each.name for each in tmp_path.iterdir())
    assert names == ["000000-golf_ball-0.webp", "000000-golf_ball-1.png"]


def test_the_example_of_a_job_goes_on_where_it_was(url: str, photos: Path, tmp_path: Path) -> None:
    target = tmp_path / "labels-of-job.jsonl"
    example("job.py", url, photos, target)
    whole = target.read_text().splitlines(keepends=True)
    assert len({json.loads(line)["photo"] for line in whole}) == len([*photos.iterdir()])
    target.write_text("".join(whole[:4]))
    example("job.py", url, photos, target)
    assert target.read_text().splitlines(keepends=True) == whole


def test_every_example_is_run_by_a_test() -> None:
    text = Path(__file__).read_text()
    assert all(f'"{each.name}"' in text for each in EXAMPLES.glob("*.py"))
