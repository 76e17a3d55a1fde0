"""What the simulation takes from measurements: times of stages, from committed results.

Nothing here was fitted to a rate that `validation.py` compares. Of a closed loop over HTTP the CPU
time of an image in each process is taken, which is no rate, with the latency of one connection and
the spread of one point's latencies.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tools.scale.simulation.cpu_worker import CpuCosts
from tools.scale.simulation.gpu_host import Costs

RESULTS = Path(__file__).parents[2] / "tests" / "bench" / "results"

COMPUTE_BATCH = 0.2e-3
"""Seconds of kernels for any batch: a captured graph of one image takes 0.27 ms on an H200."""

LAUNCH_SPREAD = 0.7
"""Coefficient of variation of a launch. It was chosen so that the p99 of the first run of
`serve_gpu` at 512 connections, 67.5 ms, is that of the simulation; no other point was looked at."""


def result(name: str) -> Any:
    """Return a committed result."""
    return json.loads((RESULTS / f"{name}.json").read_text())


def _engines() -> tuple[float, float]:
    """Return images a second that the JPEG engines decode for one thread and for two."""
    two = result("engine_rates")["two_threads"]
    return two["one_thread_then"], two["hardware_420"]


def _compute_image() -> float:
    """Return seconds of the GPU for an image in full batches."""
    found = result("profile_gpu")
    return float(found["utilisation"]["shares"]["compute"] / found["images_per_second"])


def two_gpus(setup: str, form: str, connections: int) -> Mapping[str, Any]:
    """Return a point of the run with two GPUs."""
    found = result("two_gpus_first")["setups"][setup][form][str(connections)]
    assert isinstance(found, dict)
    return found


def front_end_seconds(point: Mapping[str, Any]) -> float:
    """Return the CPU time of the front ends for an image, of all servers of a point."""
    cores = sum(server["front end"]["cores"] for server in point["servers"])
    return float(cores / point["images_per_second"])


def _threads(point: Mapping[str, Any], name: str) -> float:
    """Return the CPU time for an image of the workers' threads of one name."""
    workers = [
        use for server in point["servers"] for kind, use in server.items() if "worker" in kind
    ]
    return float(
        sum(sum(use["threads"].get(name, ())) for use in workers) / point["images_per_second"]
    )


def launch(alone: float, front_end: float) -> tuple[float, float]:
    """Return seconds of a launch for a batch and for each of its images.

    In full batches an image takes the CPU time of the launch thread, of which its part of the JPEG
    engines is a part. Beside it, the loop and the collect thread hold the interpreter for as long
    as that thread runs Python. What one image alone takes beyond that is time of its batch.
    """
    full = two_gpus("one", "multipart", 768)
    rate_one, rate_two = _engines()
    thread, engines = _threads(full, "launch"), 2 / rate_two
    workers = sum(
        use["cores"]
        for server in full["servers"]
        for kind, use in server.items()
        if "worker" in kind
    )
    others = workers / full["images_per_second"] - thread
    image = (thread - engines) * (1 + others / thread)
    compute = COMPUTE_BATCH + _compute_image()
    batch = alone - front_end - 1 / rate_one - compute
    # An image's part of its batch's time is in the thread's time already, with 64 of a full batch.
    return batch, max(0.0, image - batch / 64)


def costs_of(front_end: float, busiest: float, alone: float, slower: float = 1.0) -> Costs:
    """Return the costs of labels.

    `busiest` is the share of a core at which a front end that has always work stays: what is
    missing are its waits for its other threads. `slower` multiplies all times of CPUs.
    """
    batch, image = launch(alone, front_end)
    return Costs(
        front_end=front_end / busiest,
        launch_batch=batch * slower,
        launch_image=image * slower,
        decoding=_engines(),
        compute_batch=COMPUTE_BATCH,
        compute_image=_compute_image(),
        collect_image=14e-6 * slower,
        collectors=1,
        latency=0.0,
        launch_spread=LAUNCH_SPREAD,
    )


def served(run: int, form: str) -> Costs:
    """Return the costs on the machine of a run of `serve_gpu`, for bodies of one or of 16."""
    found = result("serve_gpu")["runs"][run]["parts"]["darkroom"]["subsampled"]
    best, raw = found[form]["best"], found["raw"]
    images = 1 if form == "raw" else 16
    use = best["server_cores"]
    front_end = use["front end"] / best["per_second"] / images
    alone = raw["p50_ms_at_1"] / 1e3
    raw_front_end = raw["best"]["server_cores"]["front end"] / raw["best"]["per_second"]
    costs = costs_of(raw_front_end, raw["best"]["server_cores"]["busiest front end"], alone)
    busiest = raw["best"]["server_cores"]["busiest front end"]
    return replace(costs, front_end=front_end / busiest)


def host_slowness() -> float:
    """Return by how much an image's CPU time grows while the other half of the host is busy too.

    That of two servers side by side is compared with that of one.
    """
    one = front_end_seconds(two_gpus("one", "raw", 768))
    # The point lists the processes of one of the two servers, and the rate of both.
    return 2 * front_end_seconds(two_gpus("apart", "raw", 768)) / one


def _busiest(point: Mapping[str, Any]) -> float:
    return float(point["servers"][0]["front end"]["busiest_process"])


def second_run(setup: str, form: str) -> Mapping[str, Any]:
    """Return a point of the second run with two GPUs, with 768 connections."""
    found = result("two_gpus_first")["second_run"]["setups"][setup][form]["768"]
    assert isinstance(found, dict)
    return found


def second_run_costs(setup: str, form: str) -> Costs:
    """Return the costs of the second run, whose front ends took another CPU time for an image.

    It is another machine and a later commit. All other costs are those of the first run.
    """
    whole_host = setup == "two"
    costs = two_gpus_costs(form, whole_host=whole_host)
    point = second_run(setup, form)
    seconds = point["front_end_cores"] / point["images_per_second"]
    busiest = _busiest(two_gpus("apart" if whole_host else "one", "raw", 768))
    return replace(costs, front_end=seconds / busiest)


def two_gpus_costs(form: str, *, whole_host: bool) -> Costs:
    """Return the costs on the machine with two GPUs, of one GPU's half or of the whole host.

    Where the whole host is busy, a front end waits longer for its other threads, too: of two
    servers side by side it stays at a smaller share of a core than that of one.
    """
    raw = two_gpus("one", "raw", 768)
    busiest = _busiest(two_gpus("apart", "raw", 768) if whole_host else raw)
    slower = host_slowness() if whole_host else 1.0
    alone = result("serve_gpu")["runs"][0]["parts"]["darkroom"]["subsampled"]["raw"]["p50_ms_at_1"]
    connections = 768 if form != "multipart" else 256
    front_end = front_end_seconds(two_gpus("one", form, connections)) * slower
    costs = costs_of(front_end_seconds(raw), busiest, alone / 1e3, slower)
    costs = replace(costs, front_end=front_end / busiest)
    if form == "blurred_by_gpu":
        # Six slots of two workers are always under way at the best point, each in turn launched,
        # computed and collected; what launching and computing leave of their time is collecting.
        each = 6 / two_gpus("one", form, 768)["images_per_second"]
        each -= costs.launch_batch / slower / 64 + costs.launch_image / slower
        each -= 2 / costs.decoding[1] + costs.compute_image
        costs = replace(costs, collect_image=each * slower, collectors=3)
    return costs


def amx_worker() -> CpuCosts:
    """Return the costs of a worker on one core with AMX and two hyperthreads."""
    found = result("serve_cpu")
    image = 1 / found["plain_loop_per_second"]
    return CpuCosts(found["http"]["1"]["p50_ms"] / 1e3 - image, image)


def plain_worker() -> CpuCosts:
    """Return the costs of a worker on two hyperthreads without bf16."""
    found = result("overload")
    image = 1 / found["capacity_per_second"]
    return CpuCosts(found["alone_ms"] / 1e3 - image, image)


def restart_seconds() -> float:
    """Return how long a server with a GPU takes to start when its kernels are compiled."""
    starts = result("ready_gpu")["starts"]
    return float(sorted(each["seconds"] for each in starts)[1])
