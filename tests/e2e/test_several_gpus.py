"""A server on two GPUs, which a made-up driver reports: its processes, and the loss of workers.

There is no CUDA here, so each worker of a GPU computes on the CPU in its place; what belongs to
which GPU, and which CPUs a process runs on, is as with real ones.
"""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.pictures import jpeg
from tests.server import Served, children, get, post, serving, until

pytestmark = pytest.mark.slow

DRIVER = """
#include <cstdio>
extern "C" {
int cuInit(unsigned) { return 0; }
int cuDeviceGetCount(int *count) { *count = 2; return 0; }
int cuDeviceGetPCIBusId(char *text, int n, int device) {
  snprintf(text, n, "ffff:%02x:00.0", device);
  return 0;
}
}
"""
FLAGS = ("--front-ends", "2", "--gpu-workers", "1", "--grace", "9999")
PATH = "/filter?name=gaussian_blur&sigma=2&format=jpeg"
RAW = {"Content-Type": "image/jpeg"}
IMAGES = 60


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("g++ is not installed; it makes the driver")
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("two GPUs need two CPUs")
    folder = tmp_path_factory.mktemp("driver")
    source = folder / "driver.cpp"
    source.write_text(DRIVER)
    made = [compiler, "-shared", "-fPIC", "-o", str(folder / "libcuda.so.1"), str(source)]
    subprocess.run(made, check=True)
    # Weights that are not there: workers that only filter start in a third of the time.
    flags = (*FLAGS, "--weights", "imagenet1k_v1", "--cache-folder", str(folder / "cache"))
    there = {"LD_LIBRARY_PATH": str(folder), "http_proxy": "http://127.0.0.1:1"}
    there["https_proxy"] = there["http_proxy"]
    with serving(*flags, "--log-level", "error", environment=there) as server:
        until(lambda: len(children(server.process.pid)) == 4)
        yield server


def test_each_device_has_its_counters(two: Served) -> None:
    assert blurred(two) == 200
    found = get(f"http://127.0.0.1:{two.port}/metrics").text
    rows = dict(row.rsplit(" ", 1) for row in found.splitlines() if row.startswith("darkroom_dev"))
    assert float(rows['darkroom_device_images_total{device="cpu"}']) > 0
    assert float(rows['darkroom_device_busy_seconds_total{device="cpu"}']) > 0
    assert rows['darkroom_device_info{device="cpu",uuid=""}'] == "1.0"
    assert float(rows['darkroom_device_images_per_second{device="cpu"}']) > 0
    assert 'darkroom_device_queue_images{device="cpu"}' in rows


def blurred(server: Served) -> int:
    url = f"http://127.0.0.1:{server.port}{PATH}"
    return post(url, content=jpeg(1, 640, 480), headers=RAW).status_code


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_a_worker_of_one_gpu_ends_without_a_lost_request(two: Served, end: signal.Signals) -> None:
    with ThreadPoolExecutor(8) as clients:
        asked = [clients.submit(blurred, two) for _ in range(IMAGES)]
        until(lambda: sum(each.done() for each in asked) >= IMAGES // 6)
        os.kill(children(two.process.pid)["worker 1 of GPU 1"], end)
        assert [each.result() for each in asked] == [200] * IMAGES
    until(lambda: "worker 1 of GPU 1" in children(two.process.pid))
    assert get(f"http://127.0.0.1:{two.port}/readyz").status_code == 200
