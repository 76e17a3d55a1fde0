"""The mean micro-batch of a server between two moments, from its /metrics."""

import urllib.request
from typing import NamedTuple

_SUM, _COUNT = "darkroom_batch_size_sum", "darkroom_batch_size_count"


class Batches(NamedTuple):
    """Images in all finished micro-batches, and the number of those batches."""

    images: float
    number: float

    @classmethod
    def of(cls, port: int) -> "Batches":
        """Read the metrics of a server."""
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
            rows = [row.rsplit(" ", 1) for row in answer.read().decode().splitlines()]
        found = {name: 0.0 for name in (_SUM, _COUNT)}
        for row in rows:
            name = row[0].partition("{")[0]
            if name in found:
                found[name] += float(row[1])
        return cls(found[_SUM], found[_COUNT])

    def mean_until(self, later: "Batches") -> float:
        """Return the mean number of images of the batches between two moments; 0 without any."""
        return round((later.images - self.images) / max(later.number - self.number, 1.0), 1)
