"""For every test: examples of Hypothesis, Ctrl-C, the root logger, and memory of the process."""

import gc
import logging
import signal
from collections.abc import Iterator

import pytest
from hypothesis import settings

import app.cli.script  # noqa: F401  # sets the environment of thread pools before torch is imported
from models.malloc import return_freed_memory
from tests.postgres import Postgres, programs
from tests.postgres import running as running_postgres

settings.register_profile("quick", deadline=None, max_examples=20)
settings.register_profile("thorough", deadline=None, max_examples=200)  # `make test-slow`
settings.load_profile("quick")

# A shell starts background jobs with SIGINT ignored, and all processes below them inherit that: the
# commands and servers that tests end by Ctrl-C would never end.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Run tests that are coroutines in asyncio."""
    return "asyncio"


@pytest.fixture(autouse=True)
def root_logger() -> Iterator[None]:
    """Give the root logger its level and its handlers back: commands configure it."""
    root = logging.getLogger()
    level, handlers = root.level, root.handlers[:]
    yield
    root.setLevel(level)
    root.handlers[:] = handlers


def pytest_collection_finish() -> None:
    """Let collections of garbage pass over the modules and the tests, which stay to the end."""
    gc.freeze()


@pytest.hookimpl(trylast=True)  # after fixtures of the file have ended
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Give freed memory back after each file: workers that tests start here let glibc keep it."""
    if nextitem is None or nextitem.path != item.path:
        gc.collect()
        gc.freeze()  # the modules that were imported meanwhile: a collection of all took 0.2 s
        return_freed_memory()


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """Return a PostgreSQL server; tests are skipped where none is installed."""
    if programs() is None:
        pytest.skip("PostgreSQL is not installed in /usr/lib/postgresql")
    with running_postgres() as server:
        yield server
