from collections.abc import Iterator

import pytest

from app.admission.counters import Counters


@pytest.fixture
def several() -> Iterator[list[Counters]]:
    """Two front ends of a server; both claim as this process, so each has a column of its own."""
    parent = Counters.create(2)
    assert parent.fd is not None
    yield [Counters.attach(parent.fd, 2) for _ in range(2)]
    parent.close()
