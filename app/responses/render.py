"""Make the response of a request from its answers, in the form that was negotiated."""

import secrets

from fastapi.responses import Response

from app.http.media_types import EVENTS, IMAGE, JSON, MULTIPART, ZIP
from app.responses import multipart, streams
from app.responses.archive import members, stored
from app.responses.body import StreamedBody
from app.responses.complete import image_reply, json_reply
from app.responses.rendering import Answers, Rendering


async def render(answers: Answers, form: str, rendering: Rendering) -> Response:
    """Return the response: `form` is JSON, IMAGE or one of STREAMS.

    JSON and IMAGE await all answers here; the others take them while the response is sent.
    """
    if form == JSON:
        return await json_reply(answers, rendering)
    if form == IMAGE:
        return await image_reply(answers, rendering)
    headers, kind = dict(rendering.headers), form
    if form == ZIP:
        headers["Content-Disposition"] = 'attachment; filename="darkroom.zip"'
        content = stored(members(answers, rendering))
    elif form == MULTIPART:
        boundary = secrets.token_hex(16)
        kind = f"{MULTIPART}; boundary={boundary}"
        content = multipart.parts(answers, rendering, boundary)
    elif form == EVENTS:
        headers["Cache-Control"] = "no-cache"
        content = streams.events(answers, rendering)
    else:
        content = streams.json_lines(answers, rendering)
    return StreamedBody(content, headers, kind, source=answers)
