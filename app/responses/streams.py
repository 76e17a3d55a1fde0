"""Records that are sent as they finish: JSON Lines and server-sent events."""

from fastapi.sse import format_sse_event

from app.responses.body import Body, in_turns
from app.responses.inline_images import InlineImages
from app.responses.records import line, summary
from app.responses.rendering import Answers, Rendering


async def json_lines(answers: Answers, rendering: Rendering) -> Body:
    """Yield one record a line, each as it finishes; images are inside as base64."""
    async for each in answers:
        inline = InlineImages()
        text = line(rendering.record(each, inline=inline))
        async for piece in in_turns(inline.pieces(text)):
            yield piece


async def events(answers: Answers, rendering: Rendering) -> Body:
    """Yield server-sent events: `model`, then a `record` as each finishes, last a `summary`."""
    records = []
    if rendering.model is not None:
        yield format_sse_event(event="model", data_str=rendering.model.model_dump_json())
    async for each in answers:
        inline = InlineImages()
        made = rendering.record(each, inline=inline)
        records.append(made)
        body = made.model_dump_json(exclude_none=True)
        event = format_sse_event(event="record", id=str(made.index), data_str=body)
        async for piece in in_turns(inline.pieces(event)):
            yield piece
    yield format_sse_event(event="summary", data_str=summary(records).model_dump_json())
