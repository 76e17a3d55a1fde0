"""Kill a node of a Ray cluster under load, with the worker on it: no accepted image may be lost.

`python -m tests.chaos.ray_cluster [--clients 8] [--seconds 24]` starts three nodes on this host by
Ray's own cluster utility: one for the front end, two for a worker each. Clients send forms of
photos all the time, by HTTP. After a third of the time a worker's node is killed with SIGKILL,
together with all its processes. Each request that is accepted must be answered with 200, and each
image of it with its labels; a client that is refused as overload asks again a second later. The
last line is a JSON object; the exit code is 1 if a request was lost.
"""

import argparse
import json
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import httpx

from tests.pictures import jpeg
from tests.ports import free_port
from tests.ray_cluster import import_ray, quiet
from tests.server import until

SETTINGS = {"weights": "random", "precision": "fp32", "threads": 1, "drain_timeout": 20.0}
IMAGES = 4
"""Photos of each request."""

PATIENCE = 120.0
"""Seconds within which workers come, and the loss of a worker is seen."""


@contextmanager
def cluster() -> Iterator[tuple[Any, Any, str]]:
    """Serve on three nodes; yield the cluster, the node of a worker and the URL."""
    import ray
    from ray import serve
    from ray.cluster_utils import Cluster

    from app.cluster import application
    from darkroom.cluster import FrontEnds, Workers

    common: dict[str, Any] = {"num_cpus": 4, "object_store_memory": 150 << 20}
    head = {**common, "resources": {"front": 1}, "include_dashboard": False}
    nodes = Cluster(initialize_head=True, head_node_args=head)
    try:
        _, second = [nodes.add_node(**common, resources={"worker": 1}) for _ in range(2)]
        ray.init(address=nodes.address, log_to_driver=False)
        port = free_port()
        serve.start(proxy_location="HeadOnly", http_options={"host": "127.0.0.1", "port": port})
        front = {"ray_actor_options": {"num_cpus": 1, "resources": {"front": 0.1}}}
        actor = {"num_cpus": 1, "resources": {"worker": 1}}
        computing = {"num_replicas": 2, "health_check_period_s": 2.0, "ray_actor_options": actor}
        serve.run(application(FrontEnds, Workers, SETTINGS, front, computing), name="darkroom")
        until(lambda: workers() == 2, PATIENCE)
        yield nodes, second, f"http://127.0.0.1:{port}"
    finally:
        serve.shutdown()
        ray.shutdown()
        nodes.shutdown()


def workers() -> int:
    """Return the number of running replicas of the workers."""
    from ray import serve

    found = serve.status().applications["darkroom"].deployments["workers"].replica_states
    return sum(count for state, count in found.items() if state == "RUNNING")


class Load:
    """Requests of clients in threads until `ended` is set."""

    def __init__(self, url: str) -> None:
        self.ended = threading.Event()
        self.seconds: list[float] = []
        self.refused = 0
        self.lost: list[str] = []
        self._url = url

    def send(self, number: int) -> None:
        """Send forms of the same photos one after another."""
        files = [("files", (f"{n}.jpg", jpeg(number * 9 + n, 160, 160))) for n in range(IMAGES)]
        with httpx.Client(base_url=self._url, timeout=60) as client:
            while not self.ended.is_set():
                began = time.monotonic()
                while (wrong := self._wrong(client, files)) is None:
                    self.refused += 1
                    time.sleep(1.0)
                self.seconds.append(time.monotonic() - began)
                self.lost += [wrong] if wrong else []

    @staticmethod
    def _wrong(client: httpx.Client, files: Any) -> str | None:
        """Return what is wrong with an answer, or an empty text; None for a refusal."""
        try:
            answer = client.post("/classify?top_k=1", files=files)
        except httpx.HTTPError as error:
            return repr(error)
        if answer.status_code != 200:
            refused = answer.status_code == 503 and '"overloaded"' in answer.text
            if refused and "Retry-After" in answer.headers:
                return None
            return f"{answer.status_code} {answer.text[:200]}"
        labelled = [each for each in answer.json()["results"] if each.get("predictions")]
        return "" if len(labelled) == IMAGES else answer.text[:200]


def main() -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=24.0)
    given = parser.parse_args()
    import_ray()
    with quiet(), cluster() as (nodes, second, url), ThreadPoolExecutor(given.clients) as threads:
        load = Load(url)
        sending = [threads.submit(load.send, number) for number in range(given.clients)]
        try:
            time.sleep(given.seconds / 3)
            before = len(load.seconds)
            nodes.remove_node(second, allow_graceful=False)
            until(lambda: workers() == 1, PATIENCE)
            time.sleep(given.seconds * 2 / 3)
        finally:
            load.ended.set()
        for each in sending:
            each.result()
    times = sorted(load.seconds)
    report = {
        "program": "ray_cluster",
        "command": "python -m tests.chaos.ray_cluster " + " ".join(sys.argv[1:]),
        "requests": len(times),
        "requests_before_the_kill": before,
        "images": len(times) * IMAGES,
        "refused": load.refused,
        "lost": len(load.lost),
        "first_lost": load.lost[:3],
        "median_s": round(times[len(times) // 2], 3),
        "longest_s": round(times[-1], 3),
    }
    print(json.dumps(report))
    return int(bool(load.lost) or before == 0)


if __name__ == "__main__":
    sys.exit(main())
