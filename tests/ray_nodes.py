"""A Ray cluster on this machine: a head node without CPUs, and nodes that can be killed.

`python -m tests.ray_nodes --cpus 1 1` starts it, prints its address, and kills node 0 when it reads
the line `0`. It ends when its standard input closes. It is a process of its own, because Ray cannot
be stopped completely in a process that goes on. All nodes are at 127.0.0.2, an address of the
loopback interface too: Ray puts the machine's outside address in place of 127.0.0.1. Ray's files
are in a folder of their own, so other clusters on the machine are left alone. Programs
that join it need its token; `nodes` puts it into the environment of this process meanwhile.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.ray_cluster import quiet

HOST = "127.0.0.2"
STORE = 100 << 20
"""Bytes of each node's object store."""


class Nodes:
    """A running cluster at `address`, which `process` has started."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self.process = process.pid
        assert process.stdout is not None
        self.address = process.stdout.readline().strip()
        assert self.address.startswith(HOST), "the cluster did not start"

    def kill(self, number: int) -> None:
        """Kill a node with all its processes."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(number, file=self._process.stdin, flush=True)
        assert self._process.stdout.readline() == f"{number}\n"


@contextmanager
def nodes(*cpus: int, environment: dict[str, str] | None = None) -> Iterator[Nodes]:
    """Run a cluster of nodes with these numbers of CPUs."""
    words = [sys.executable, "-m", "tests.ray_nodes", "--cpus", *map(str, cpus)]
    with (
        quiet(),
        subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, **(environment or {})},
        ) as process,
    ):
        try:
            yield Nodes(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(60)


def serve(cpus: Sequence[int]) -> None:
    """Run the cluster until standard input closes."""
    from ray.cluster_utils import Cluster

    folder = tempfile.mkdtemp(prefix="ray")  # the paths of sockets in it must be short
    # Ray notes the address of the newest cluster in `ray` of this folder, and does not make that
    # folder. By default it is one that clusters share.
    os.environ["RAY_TMPDIR"] = folder
    (Path(folder) / "ray").mkdir()
    head: dict[str, Any] = {"num_cpus": 0, "temp_dir": folder, "include_dashboard": False}
    common: dict[str, Any] = {"node_ip_address": HOST, "object_store_memory": STORE}
    cluster: Any = Cluster(initialize_head=True, head_node_args=head | common)
    try:
        started = [cluster.add_node(num_cpus=each, num_gpus=0, **common) for each in cpus]
        print(cluster.address, flush=True)
        for line in sys.stdin:
            cluster.remove_node(started[int(line)], allow_graceful=False)
            print(line, end="", flush=True)
    finally:
        cluster.shutdown()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cpus", type=int, nargs="+", required=True)
    serve(parser.parse_args().cpus)
