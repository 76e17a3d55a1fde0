"""How fast a device is, and how long it was busy, by moments that are given."""

from workers.scheduling.throughput import BusyTime


def test_batches_that_overlap_count_once() -> None:
    busy = BusyTime()
    found = [busy.add(launched, done) for launched, done in ((0.0, 4.0), (1.0, 5.0), (8.0, 9.0))]
    assert found == [4.0, 1.0, 1.0]


def test_a_batch_that_is_collected_late_adds_nothing() -> None:
    busy = BusyTime()
    assert busy.add(2.0, 5.0) == 3.0
    assert busy.add(1.0, 4.0) == 0.0
    assert busy.add(4.5, 6.0) == 1.0
