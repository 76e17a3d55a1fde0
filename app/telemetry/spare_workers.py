"""Tell the front ends, by a file in the folder of metrics, how many spare workers the server has.

The supervisor, which alone knows that, has no metrics of its own.
"""

import json
import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

log = logging.getLogger("darkroom.supervisor")

_FILE = "spare-workers.json"


def write(folder: str, wanted: Mapping[str, int], ready: Mapping[str, int]) -> None:
    """Write the numbers of each pool: of spares that there shall be, and that can work.

    A file that cannot be written is logged: the supervisor goes on.
    """
    numbers = {pool: {"wanted": n, "ready": ready.get(pool, 0)} for pool, n in wanted.items()}
    file = Path(folder, _FILE)
    new = file.with_suffix(".new")
    try:
        new.write_text(json.dumps(numbers))
        os.replace(new, file)  # so that no reader finds half of it
    except OSError as error:
        log.warning("the number of spare workers could not be written: %s", error)


class SpareWorkers(Collector):
    """Collector of what `write` has written last into `folder`."""

    def __init__(self, folder: str) -> None:
        self._file = Path(folder, _FILE)

    def describe(self) -> Iterable[Metric]:
        """Name nothing in advance, so that registering reads no values."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Yield the numbers of each pool; none before the supervisor has written them."""
        try:
            numbers: dict[str, dict[str, int]] = json.loads(self._file.read_bytes())
        except OSError:
            numbers = {}
        text = "Spare workers: wanted, and ready to take the place of a worker that ends."
        gauge = GaugeMetricFamily("darkroom_spare_workers", text, labels=["pool", "state"])
        for pool, states in numbers.items():
            for state, n in states.items():
                gauge.add_metric([pool, state], n)
        yield gauge
