"""`darkroom classify --ray` and `filter --ray` on a Ray cluster of two nodes of this machine."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from models.exit_codes import ExitCode
from tests.object_stores import BUCKET, s3
from tests.pictures import jpeg, png
from tests.ray_nodes import Nodes, nodes
from tests.server import PATIENCE, until

if find_spec("ray") is None:
    pytest.skip("Ray is not installed", allow_module_level=True)
pytest.importorskip("obstore")
pytest.importorskip("moto")

NO_ACTOR = b"darkroom: no actor is ready yet: they start, or wait for free CPUs or GPUs"
"""What a command may say on a machine that starts actors slowly."""

CLASSIFY = ["classify", "--gpus", "0", "--weights", "random", "--precision", "fp32"]


@pytest.fixture(scope="module")
def store() -> Iterator[dict[str, str]]:
    """Return the environment of programs that use an empty bucket."""
    with s3() as environment:
        yield environment


@pytest.fixture(scope="module")
def cluster(store: dict[str, str]) -> Iterator[Nodes]:
    with nodes(1, 1, environment=store) as started:
        yield started


def words(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "app.cli", *map(str, arguments)]


def records(folder: Path) -> int:
    """Return the number of records of a command that has not ended."""
    return sum(each.read_bytes().count(b"\n") for each in folder.glob("*.partial"))


def test_labels_are_those_of_one_process_to_the_byte(cluster: Nodes, tmp_path: Path) -> None:
    folder, out = tmp_path / "photos", tmp_path / "labels.jsonl"
    folder.mkdir()
    for number in range(24):
        (folder / f"{number:02}.jpg").write_bytes(jpeg(number % 3, 64, 48))
    (folder / "20.jpg").write_text("no image")
    alone = subprocess.run(words(*CLASSIFY, folder, "--out", out), capture_output=True)
    assert alone.returncode == ExitCode.FAILED, alone.stderr
    expected = out.read_bytes()
    asked = words(*CLASSIFY, folder, "--out", out, "--force", "--ray", cluster.address)
    on_ray = subprocess.run(asked, capture_output=True, timeout=PATIENCE, text=True)
    assert on_ray.returncode == ExitCode.FAILED, on_ray.stderr
    assert "24 images, 1 failed" in on_ray.stderr
    assert on_ray.stdout == ""
    assert out.read_bytes() == expected


def test_a_killed_or_terminated_command_goes_on_without_redoing(
    cluster: Nodes, tmp_path: Path
) -> None:
    folder, out = tmp_path / "photos", tmp_path / "inverted"
    folder.mkdir()
    for number in range(40):
        (folder / f"{number:02}.png").write_bytes(png(number, 64, 48))
    pipe = folder / "36.png"
    kept = pipe.read_bytes()
    pipe.unlink()
    os.mkfifo(pipe)  # the command waits there, so it cannot end too early
    asked = words("filter", folder, "--op", "invert", "--gpus", "0", "--ray", cluster.address)
    asked += ["--out", str(out)]
    with subprocess.Popen(asked, stderr=subprocess.DEVNULL) as first:
        until(lambda: records(tmp_path) >= 8 or first.poll() is not None)
        first.kill()
    with subprocess.Popen(asked, stderr=subprocess.PIPE) as told:
        until(lambda: records(tmp_path) >= 32 or told.poll() is not None)
        told.send_signal(signal.SIGTERM)
        printed = told.communicate(timeout=PATIENCE)[1].splitlines()
        assert set(printed) <= {NO_ACTOR}, printed
    assert told.returncode == ExitCode.TERMINATED
    done = records(tmp_path)
    written = {path.name: path.stat().st_mtime_ns for path in out.iterdir()}
    pipe.unlink()
    pipe.write_bytes(kept)
    second = subprocess.run(asked, capture_output=True, timeout=PATIENCE, text=True)
    assert second.returncode == ExitCode.OK, second.stderr
    assert f"40 images, {done} of them by an earlier run, 0 failed" in second.stderr
    for number in range(done):
        assert (out / f"{number:02}.png").stat().st_mtime_ns == written[f"{number:02}.png"]
    alone = words("filter", folder, "--op", "invert", "--gpus", "0", "-o", tmp_path / "alone")
    assert subprocess.run(alone, capture_output=True).returncode == ExitCode.OK
    for path in (tmp_path / "alone").iterdir():
        assert (out / path.name).read_bytes() == path.read_bytes()


def test_a_node_that_is_lost_loses_no_image_of_a_bucket(
    cluster: Nodes, store: dict[str, str], tmp_path: Path
) -> None:
    put = f"s3://{BUCKET}/photos"
    with pytest.MonkeyPatch.context() as patch:
        for name, value in store.items():
            patch.setenv(name, value)
        upload({f"{number:02}.jpg": jpeg(number % 3, 320, 240) for number in range(32)})
        asked = ["filter", put, "--op", "nl_means", "--gpus", "0", "--threads", "2"]
        alone = subprocess.run(words(*asked, "-o", tmp_path / "alone"), capture_output=True)
        assert alone.returncode == ExitCode.OK, alone.stderr
        on_ray = words(*asked, "-o", tmp_path / "far", "--ray", cluster.address)
        with subprocess.Popen(on_ray, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as command:
            until(lambda: records(tmp_path) >= 8 or command.poll() is not None)
            cluster.kill(0)
            output, errors = command.communicate(timeout=PATIENCE)
    assert command.returncode == ExitCode.OK, errors
    assert output == b""
    names = sorted(path.name for path in (tmp_path / "alone").iterdir())
    assert names == [f"{number:02}.jpg" for number in range(32)]
    for name in names:
        assert (tmp_path / "far" / name).read_bytes() == (tmp_path / "alone" / name).read_bytes()


def upload(images: dict[str, bytes]) -> None:
    """Put images below `photos` of the bucket."""
    import obstore
    from obstore.store import S3Store

    bucket = S3Store(BUCKET)
    for name, image in images.items():
        obstore.put(bucket, f"photos/{name}", image)
