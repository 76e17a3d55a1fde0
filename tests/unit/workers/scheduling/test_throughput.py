"""How long a device was busy, by moments that are given."""

from workers.scheduling.throughput import Throughput


def test_batches_that_overlap_count_once() -> None:
    rate, spans = Throughput(), ((0.0, 4.0), (1.0, 5.0), (8.0, 9.0))
    assert [rate.add(1, launched, done) for launched, done in spans] == [4.0, 1.0, 1.0]
