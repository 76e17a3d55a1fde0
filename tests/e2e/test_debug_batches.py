"""`GET /debug/batches` at a real server of one process."""

from pathlib import Path

import httpx
import pytest

from tests.e2e.conftest import Start
from tests.pictures import jpeg
from tests.server import until

RAW = {"Content-Type": "image/jpeg"}


def test_without_the_setting_there_is_no_such_page(client: httpx.Client) -> None:
    reply = client.get("/debug/batches")
    assert reply.status_code == 404
    assert "DARKROOM_DEBUG_BATCHES" in reply.json()["detail"]
    assert "/debug/batches" not in client.get("/openapi.json").json()["paths"]


def test_the_batch_of_a_request_is_found_by_its_id_and_only_with_a_key(
    start: Start, tmp_path: Path
) -> None:
    keys = tmp_path / "keys"
    keys.write_text("alice:secret\n!bob:other\n")
    with start(debug_batches=10, api_keys_file=str(keys), weights="bundled") as server:
        client, key = server.client, {"X-API-Key": "secret"}
        sent = {"X-Request-ID": "the-one", **RAW, **key}
        assert "/debug/batches" in client.get("/openapi.json").json()["paths"]
        reply = client.post("/filter?name=sepia", content=jpeg(), headers=sent)
        assert reply.status_code == 200

        def found() -> list[dict[str, object]]:
            listed = client.get("/debug/batches", headers=key).json()["batches"]
            ids = [[image["request_id"] for image in each["images"]] for each in listed]
            return [each for each, of in zip(listed, ids, strict=True) if of == ["the-one"]]

        until(lambda: bool(found()))  # a batch is remembered after its answers are delivered
        (batch,) = found()
        assert (batch["operation"], batch["filters"]) == ("filter", ["sepia"])
        assert (batch["size"], batch["device"]) == (1, "cpu")
        for other, status in (("no", 401), ("other", 403)):
            refused = client.get("/debug/batches", headers={"X-API-Key": other})
            assert refused.status_code == status
        assert client.get("/debug/batches").status_code == 401


@pytest.mark.parametrize("last", ["0", "1001", "x"])
def test_a_wrong_number_of_batches_is_refused(client: httpx.Client, last: str) -> None:
    assert client.get(f"/debug/batches?last={last}").status_code == 422
