"""A Ray cluster whose worker node is killed under load, and whose replicas grow and shrink.

`python -m tests.chaos.ray_cluster` starts three nodes on this host by Ray's own cluster utility:
one for front ends, two for workers. Clients send forms of photos all the time, by HTTP.

1. A node with a worker's replica is killed with SIGKILL, together with all processes of it.
2. The number of replicas follows the load: one, four under load, and one again, by the images that
   wait or are computed; the bounds are those of Ray Serve.

The promise: each request that is accepted is answered with 200, and each image of it with its
labels. A client whose request is refused as overload, while there is one replica, sends it again
a second later. The last line is JSON; exit code 1 where a promise is broken. Everything is bounded:
`--seconds` of load for the kill, `--patience` seconds for each change of the number of replicas.
"""

import argparse
import json
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.pictures import jpeg
from tests.ports import free_port
from tests.ray_cluster import import_ray, quiet

SETTINGS = {"weights": "random", "precision": "fp32", "threads": 1, "drain_timeout": 20.0}
IMAGES = 4
"""Photos of each request."""

SIDE = 160
LOOK = 0.25

REFUSED = "refused"
"""The fault of a request that is refused as overload."""


@dataclass
class Load:
    """Clients in threads that send requests until stopped; what was not answered well is kept."""

    url: str
    clients: int
    answered: int = 0
    refused: int = 0
    lost: list[str] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def running(self) -> Iterator["Load"]:
        """Send requests while the block runs, and finish those that have begun."""
        threads = [threading.Thread(target=self._send, args=(n,)) for n in range(self.clients)]
        for each in threads:
            each.start()
        try:
            yield self
        finally:
            self._stop.set()
            for each in threads:
                each.join()

    def _send(self, number: int) -> None:
        files = [("files", (f"{n}.jpg", jpeg(number * 9 + n, SIDE, SIDE))) for n in range(IMAGES)]
        with httpx.Client(base_url=self.url, timeout=60) as client:
            while not self._stop.is_set():
                began = time.monotonic()
                wrong = self._wrong(client, files)
                while wrong == REFUSED:
                    self.refused += 1
                    time.sleep(1.0)
                    wrong = self._wrong(client, files)
                with self._lock:
                    self.answered += 1
                    self.seconds.append(time.monotonic() - began)
                    if wrong:
                        self.lost.append(wrong)

    @staticmethod
    def _wrong(client: httpx.Client, files: Any) -> str:
        """Return what was wrong with the answer to one request, or an empty text."""
        try:
            answer = client.post("/classify?top_k=1", files=files)
        except httpx.HTTPError as error:
            return repr(error)
        if answer.status_code == 503 and answer.json()["code"] == "overloaded":
            return REFUSED if "Retry-After" in answer.headers else "503 without Retry-After"
        if answer.status_code != 200:
            return f"{answer.status_code} {answer.text[:200]}"
        bad = [each for each in answer.json()["results"] if each["status"] != "ok"]
        return str(bad[0])[:200] if bad or len(answer.json()["results"]) != IMAGES else ""


@contextmanager
def cluster() -> Iterator[tuple[Any, list[Any], int]]:
    """Run a head for front ends; yield it with two nodes for workers and its HTTP port."""
    import ray
    from ray import serve
    from ray.cluster_utils import Cluster

    memory = 150 << 20
    head = {"num_cpus": 3, "resources": {"front": 1}, "object_store_memory": memory}
    found = Cluster(initialize_head=True, head_node_args={**head, "include_dashboard": False})
    try:
        workers = [
            found.add_node(num_cpus=4, resources={"worker": 4}, object_store_memory=memory)
            for _ in range(2)
        ]
        ray.init(address=found.address, log_to_driver=False)
        port = free_port()
        serve.start(proxy_location="HeadOnly", http_options={"host": "127.0.0.1", "port": port})
        yield found, workers, port
    finally:
        serve.shutdown()
        ray.shutdown()
        found.shutdown()


@contextmanager
def serving(port: int, of_workers: dict[str, Any]) -> Iterator[str]:
    """Deploy Darkroom with these options of its workers, and yield its URL at `port`."""
    from ray import serve

    from app.cluster import application
    from darkroom.cluster import FrontEnds, Workers

    front = {"ray_actor_options": {"num_cpus": 1, "resources": {"front": 0.1}}}
    computing = {
        "ray_actor_options": {"num_cpus": 1, "resources": {"worker": 1}},
        "health_check_period_s": 2.0,
        **of_workers,
    }
    built = application(FrontEnds, Workers, SETTINGS, front, computing)
    serve.run(built, name="darkroom", route_prefix="/")
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        serve.delete("darkroom")


def replicas() -> int:
    """Return the number of running replicas of the workers."""
    from ray import serve

    states = serve.status().applications["darkroom"].deployments["workers"].replica_states
    return sum(count for state, count in states.items() if state == "RUNNING")


def until(number: int, patience: float) -> float:
    """Wait for a number of running replicas; return the seconds, or raise TimeoutError."""
    began = time.monotonic()
    while replicas() != number:
        if time.monotonic() - began > patience:
            raise TimeoutError(f"{replicas()} replicas after {patience} s, not {number}")
        time.sleep(LOOK)
    return round(time.monotonic() - began, 1)


def killed(nodes: Any, workers: list[Any], port: int, given: argparse.Namespace) -> dict[str, Any]:
    """Kill the second worker node in the middle of the load; return what became of it."""
    with serving(port, {"num_replicas": 2, "max_replicas_per_node": 1}) as url:
        until(2, given.patience)
        load = Load(url, given.clients)
        with load.running():
            time.sleep(given.seconds / 3)
            before = load.answered
            nodes.remove_node(workers.pop(), allow_graceful=False)
            time.sleep(given.seconds * 2 / 3)
        return {**shown(load), "answered_before": before}


def scaled(port: int, given: argparse.Namespace) -> dict[str, Any]:
    """Let replicas follow a load that comes and goes; return the seconds of each change."""
    scaling = {
        "min_replicas": 1,
        "max_replicas": 4,
        "target_ongoing_requests": 4,
        "look_back_period_s": 2,
        "upscale_delay_s": 1,
        "downscale_delay_s": 2,
        "metrics_interval_s": 0.5,
    }
    with serving(port, {"autoscaling_config": scaling}) as url:
        until(1, given.patience)
        few, many = Load(url, 1), Load(url, given.clients)
        with few.running():
            with many.running():
                to_four = until(4, given.patience)
                time.sleep(2)
            to_one = until(1, given.patience)
        both = {"to_four_s": to_four, "to_one_s": to_one}
        return {**both, "many": shown(many), "one_client": shown(few)}


def shown(load: Load) -> dict[str, Any]:
    """Return what became of the requests of a load."""
    times = sorted(load.seconds)
    return {
        "requests": load.answered,
        "images": load.answered * IMAGES,
        "refused": load.refused,
        "lost": len(load.lost),
        "first_lost": load.lost[:3],
        "median_s": round(times[len(times) // 2], 3) if times else None,
        "longest_s": round(times[-1], 3) if times else None,
    }


def main() -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=24.0)
    parser.add_argument("--patience", type=float, default=90.0)
    given = parser.parse_args()
    import_ray()
    with quiet(), cluster() as (nodes, workers, port):
        report: dict[str, Any] = {
            "program": "ray_cluster",
            "command": "python -m tests.chaos.ray_cluster " + " ".join(sys.argv[1:]),
            "scaled": scaled(port, given),
            "killed": killed(nodes, workers, port, given),
        }
    found = [report["killed"], report["scaled"]["many"], report["scaled"]["one_client"]]
    report["lost"] = sum(each["lost"] for each in found)
    print(json.dumps(report))
    return int(report["lost"] > 0)


if __name__ == "__main__":
    sys.exit(main())
