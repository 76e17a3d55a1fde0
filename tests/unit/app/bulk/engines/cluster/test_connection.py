"""Addresses of clusters, and what is told about those that cannot be joined."""

import subprocess
import sys
from importlib.util import find_spec

import pytest

from app.bulk.engines.cluster import connection
from app.bulk.errors import WrongUsage
from tests.ports import free_port

needs_ray = pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed")


@needs_ray
@pytest.mark.parametrize(
    "address", ["auto", "local", "head:6379", "10.0.0.1:6379", "ray://head:10001", "[::1]:6379"]
)
def test_addresses_of_ray_are_taken(address: str) -> None:
    connection.check_address(address)


@pytest.mark.parametrize("address", ["", "head", "http://head:8265", "ray://head", "head:x"])
def test_other_addresses_are_refused(address: str) -> None:
    with pytest.raises(WrongUsage, match="is no address; give auto for the cluster"):
        connection.check_address(address)


def test_without_ray_the_command_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "find_spec", lambda _name: None)
    with pytest.raises(WrongUsage, match=r"pip install '\.\[ray\]'"):
        connection.check_address("auto")


@needs_ray
@pytest.mark.parametrize("scheme", ["", "ray://"])
def test_an_address_that_nothing_answers_at_is_told_at_once(scheme: str) -> None:
    port = free_port()
    with pytest.raises(WrongUsage, match=f"nothing answers at {scheme}127.0.0.1:{port}: "):
        connection.connect(f"{scheme}127.0.0.1:{port}")


def test_the_engine_imports_ray_only_when_it_joins_a_cluster() -> None:
    program = "import app.bulk.engines.cluster.engine, sys; sys.exit('ray' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0
