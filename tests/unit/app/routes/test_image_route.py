"""An image route holds the permit of a request until its answer is the client's."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from fastapi.responses import Response
from starlette.requests import Request
from starlette.types import Message

from app.admission.permits import Admission, Limits
from app.pipeline.encoded_files import EncodedFile
from app.responses.answers import PIECE, StreamedBody, pieces_of, sized
from app.routes import image_route
from app.routes.image_route import ImageRoute
from models.settings import Settings
from tests.asgi import body_of
from tests.unit.app.admission.simulation import held

BODY = b"an image"


async def whole(request: Request) -> Response:
    await request.body()
    return Response(b"its labels")


async def streamed(request: Request) -> Response:
    await request.body()

    async def pieces() -> Any:
        yield b"its "
        yield b"labels"

    return StreamedBody(pieces(), {}, "text/plain")


async def filed(request: Request) -> Response:
    await request.body()
    file = EncodedFile(bytes(PIECE + 1))
    return sized(pieces_of(file), file.size, {}, "image/png", counted=True)


@pytest.fixture(autouse=True)
def any_service(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let routes take any object with admission, settings and keys for a service."""
    monkeypatch.setattr(image_route, "service_in", lambda scope: scope["app"].state.service)


def held_while_sending(endpoint: Any) -> list[tuple[bytes, tuple[int, int]]]:
    """Return what admission holds at each piece of the answer, and at last when the request has
    ended.
    """
    admission = Admission(Limits(images=2, bytes=1000, arriving=1000))
    service = SimpleNamespace(admission=admission, settings=Settings(), keys=None)
    app = SimpleNamespace(state=SimpleNamespace(service=service))
    scope: dict[str, Any] = {
        "type": "http",
        "method": "POST",
        "path": "/classify",
        "query_string": b"",
    }
    scope |= {"headers": [], "client": ("127.0.0.1", 1), "app": app}
    found = []

    async def send(message: Message) -> None:
        found.append((bytes(message.get("body", b"")), held(admission)))

    route = ImageRoute("/classify", endpoint, methods=["POST"])
    asyncio.run(route.handle(scope, body_of(BODY), send))
    return [*found[1:], (b"", held(admission))]


@pytest.mark.parametrize("endpoint", [whole, filed])
def test_an_answer_of_known_length_keeps_no_place_from_others_while_it_is_sent(
    endpoint: Any,
) -> None:
    held = held_while_sending(endpoint)
    assert {amount for _, amount in held} == {(0, 0)}
    assert len(b"".join(piece for piece, _ in held)) in (len(b"its labels"), PIECE + 1)


def test_a_streamed_answer_holds_its_images_until_it_was_sent() -> None:
    *sent, last = held_while_sending(streamed)
    assert [each for each in sent if each[0]] == [
        (b"its ", (1, len(BODY))),
        (b"labels", (1, len(BODY))),
    ]
    assert last == (b"", (0, 0))
