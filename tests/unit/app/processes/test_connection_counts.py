"""The counts of connections by front end."""

from contextlib import closing

from app.processes.connection_counts import ABSENT, ConnectionCounts


def test_a_machine_of_many_cores_has_counts_for_all_its_front_ends() -> None:
    n = 2 * 480
    with closing(ConnectionCounts.empty(n)) as counts:
        attached = ConnectionCounts(counts.fd, n)
        assert attached.enter(479) == 479
        assert attached.enter(479) == 959
        assert attached.fewest(959, 3) is False
        assert attached.fewest(479, 3) is True
        assert [*counts._counts].count(ABSENT) == n - 2
