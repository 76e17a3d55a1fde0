"""A real Ray on this machine for tests, and a replica whose device a test holds by files."""

import asyncio
import logging
import os
import secrets
import shutil
import tempfile
import time
import warnings
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from models.domain.errors import ServiceError
from models.domain.job import Completed, Job, Result
from models.networks.served import ServedNetwork
from tests.fakes import GUARD, FakeEngine, number_of
from tests.worker_fixture import wait_until
from workers.cluster import Offer, RayBackend, Replica
from workers.ipc.frames import EncodedError
from workers.scheduling.batcher import BatchLimits
from workers.scheduling.worker import Worker

ROOT = Path(__file__).parents[1]

ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",  # it would send statistics to Ray's authors
    "RAY_AUTH_MODE": "token",  # Ray's own servers listen on all addresses, whatever it is told
    "RAY_AUTH_TOKEN": secrets.token_hex(32),
    "RAY_DEDUP_LOGS": "0",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    "PYTHONPATH": str(ROOT),
}
"""What Ray's processes find in their environment."""


@contextmanager
def quiet() -> Iterator[None]:
    """Set the environment of this process as Ray reads it, and put it back at the end."""
    before = dict(os.environ)
    os.environ.update(ENVIRONMENT)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def import_ray() -> None:
    """Import Ray Serve, some of whose modules use what Pydantic will remove."""
    with quiet(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=DeprecationWarning, module=r"ray\.")
        import_module("ray.serve")


@contextmanager
def running_ray(cpus: int = 2) -> Iterator[str]:
    """Run Ray with one node on the loopback interface, without its dashboard; yield its address."""
    import_ray()
    import ray
    from ray import serve

    folder = tempfile.mkdtemp(prefix="ray")  # the paths of sockets in it must be short
    with quiet():
        try:
            try:
                _start(cpus, folder)
            except Exception:  # Ray gives its node 30 s, which a busy machine once did not keep
                ray.shutdown()
                _start(cpus, folder)
            yield str(ray.get_runtime_context().gcs_address)
        finally:
            if ray.is_initialized():
                serve.shutdown()
            ray.shutdown()
            shutil.rmtree(folder, ignore_errors=True)


def _start(cpus: int, folder: str) -> None:
    import ray

    ray.init(
        address="local",  # never one that runs here already
        num_cpus=cpus,
        include_dashboard=False,
        _node_ip_address="127.0.0.1",
        _temp_dir=folder,
        object_store_memory=200 << 20,
        log_to_driver=False,
        logging_level=logging.ERROR,
    )


class FileGate:
    """A point at which a device waits while a file exists; each passage adds a byte to another.

    A test and a process of Ray share nothing else that works without waiting for an event loop.
    """

    def __init__(self, folder: Path) -> None:
        self._shut, self._reached = folder / "shut", folder / "reached"
        self._seen, self._asked = folder / "seen", folder / "asked"
        self._taken = 0

    def __call__(self, _jobs: Sequence[Job]) -> None:
        """Wait here, on a thread of the worker."""
        with self._reached.open("ab") as file:
            file.write(b"x")
        ends = time.monotonic() + GUARD
        while self._shut.exists():
            assert time.monotonic() < ends, "the gate was never opened"
            time.sleep(0.001)

    def launched(self, jobs: Sequence[Job]) -> None:
        """Note the numbers of the jobs that the device was given."""
        with self._seen.open("ab") as file:
            file.write(bytes(map(number_of, jobs)))

    def ask(self) -> None:
        """Note that a job has come."""
        with self._asked.open("ab") as file:
            file.write(b"x")

    @property
    def asked(self) -> int:
        """Return how many jobs have come."""
        return self._asked.stat().st_size if self._asked.exists() else 0

    @property
    def seen(self) -> list[int]:
        """Return the numbers of all jobs that the device was given."""
        return [*self._seen.read_bytes()] if self._seen.exists() else []

    def shut(self) -> None:
        """Hold what comes from now on."""
        self._shut.touch()

    def open(self) -> None:
        """Let everything pass."""
        self._shut.unlink(missing_ok=True)

    async def reached(self) -> None:
        """Wait until one more batch is held or has passed."""
        self._taken += 1
        await wait_until(
            lambda: self._reached.exists() and self._reached.stat().st_size >= self._taken
        )

    def clear(self) -> None:
        """Open the gate, and forget what has passed."""
        self.open()
        self._reached.unlink(missing_ok=True)
        self._seen.unlink(missing_ok=True)
        self._asked.unlink(missing_ok=True)
        self._taken = 0


class HeldReplica(Replica):
    """A replica over a fake engine with one slot, whose device waits at a gate."""

    def __init__(self, folder: str, answer: Callable[[Job], Result | ServiceError]) -> None:
        gate = self._gate = FileGate(Path(folder))
        engine = FakeEngine(slots=1, answer=answer, on_collect=gate, on_launch=gate.launched)
        worker = Worker(engine, BatchLimits(max_batch_size=16, max_batch_pixels=1 << 30))
        worker.start()
        networks = (ServedNetwork("resnet18", problem="a fake has no weights"),)
        description = Offer(networks, None, 16)
        super().__init__(worker, secrets.token_hex(4), description, 16)

    async def compute(self, job: Job, *, alone: bool) -> tuple[Completed | EncodedError, float]:
        """Note that a job has come, and return its outcome."""
        self._gate.ask()
        return await super().compute(job, alone=alone)

    async def process(self) -> int:
        """Return the number of this process."""
        return os.getpid()


def deploy_held(folder: Path, answer: Callable[[Job], Result | ServiceError]) -> Any:
    """Deploy a replica with a fake engine, and return the handle of its deployment."""
    from ray import serve

    serve.start(proxy_location="Disabled")
    held: Any = serve.deployment(HeldReplica)
    deployment = held.options(
        max_ongoing_requests=1000,
        graceful_shutdown_timeout_s=1,
        health_check_period_s=0.5,  # by which Serve notices that a process has died
        ray_actor_options={"num_cpus": 0.1},
        logging_config={"enable_access_log": False},
    )
    return serve.run(deployment.bind(str(folder), answer), route_prefix=None)


class RayRig:
    """A backend whose worker is a replica of Ray Serve."""

    def __init__(self, handle: Any, gate: FileGate) -> None:
        self._gate = gate
        self._ray = RayBackend(handle, report_every=0.02)
        self.backend = self._ray

    @property
    def seen(self) -> list[int]:
        return self._gate.seen

    def hold(self) -> None:
        self._gate.shut()

    def let_go(self) -> None:
        self._gate.open()

    async def held(self) -> None:
        await self._gate.reached()

    async def accepted(self) -> None:
        await asyncio.sleep(0)  # a new task hands its job over in its first turn of the loop
        await wait_until(lambda: self._gate.asked >= self._ray.submitted)

    async def ready(self) -> None:
        await wait_until(lambda: self._ray.load().alive)


@asynccontextmanager
async def ray_rig(handle: Any, folder: Path) -> AsyncIterator[RayRig]:
    """Yield the rig of a replica that other tests have used before, and will use again."""
    gate = FileGate(folder)
    gate.clear()
    rig = RayRig(handle, gate)
    await rig.ready()
    yield rig
    rig.let_go()
    await rig.backend.aclose()
