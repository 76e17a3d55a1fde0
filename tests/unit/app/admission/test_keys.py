import hashlib
from contextlib import nullcontext
from pathlib import Path

import pytest
from starlette.types import Scope

from app.admission.clients import ApiKeys, client_of
from models.domain.errors import Forbidden, Unauthorized

TEXT = f"""
# written by hand
alice:correct horse
bob:sha256={hashlib.sha256(b"battery").hexdigest()}
!carol:staple
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "keys"
    file.write_text(TEXT)
    return file


def request(name: bytes, value: bytes) -> Scope:
    return {"type": "http", "headers": [(b"host", b"x"), (name, value)]}


@pytest.mark.parametrize(
    ("name", "value", "client"),
    [
        (b"authorization", b"Bearer correct horse", "alice"),
        (b"authorization", b"bearer battery", "bob"),
        (b"x-api-key", b"battery", "bob"),
        (b"accept", b"*/*", None),
        (b"x-api-key", b"", None),
        (b"x-api-key", b"batter", None),
        (b"x-api-key", b"x" * 5000, None),
        (b"authorization", b"Basic battery", None),
        (b"x-api-key", hashlib.sha256(b"battery").hexdigest().encode(), None),
    ],
)
def test_a_key_names_its_client_and_without_a_known_key_nobody_is_let_in(
    path: Path, name: bytes, value: bytes, client: str | None
) -> None:
    with nullcontext() if client else pytest.raises(Unauthorized):
        assert ApiKeys(path).client_of(request(name, value)) == client


def test_a_disabled_key_is_forbidden_by_its_name(path: Path) -> None:
    with pytest.raises(Forbidden, match="carol"):
        ApiKeys(path).client_of(request(b"x-api-key", b"staple"))


def test_a_file_is_read_again_and_a_bad_one_changes_nothing(path: Path) -> None:
    keys = ApiKeys(path)
    path.write_text("dave:new")
    keys.reload()
    assert keys.client_of(request(b"x-api-key", b"new")) == "dave"
    path.write_text("no key at all")
    with pytest.raises(ValueError, match="line 1"):
        keys.reload()
    assert keys.client_of(request(b"x-api-key", b"new")) == "dave"


@pytest.mark.parametrize(
    "text",
    ["", "name", "na me:key", "a:sha256=12", "a:key\nb:key", ":key", "a:"],
)
def test_a_bad_file_is_refused_without_showing_a_key(tmp_path: Path, text: str) -> None:
    file = tmp_path / "keys"
    file.write_text(text)
    with pytest.raises(ValueError, match="keys") as error:
        ApiKeys(file)
    assert "b:key" not in str(error.value)
    with pytest.raises(ValueError, match="cannot be read"):
        ApiKeys(tmp_path / "none")


@pytest.mark.parametrize(
    ("host", "client"),
    [
        ("10.1.2.3", "10.1.2.3"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("::ffff:10.1.2.3", "10.1.2.3"),
        ("fe80::1%eth0", "fe80::/64"),
        ("testclient", "testclient"),
        (None, "local"),
    ],
)
def test_a_client_is_an_address_or_an_ipv6_network(host: str | None, client: str) -> None:
    assert client_of({"type": "http", "client": host and (host, 1)}) == client
