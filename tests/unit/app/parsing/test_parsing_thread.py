"""Long texts are parsed one after the other."""

import asyncio
from threading import current_thread

import pytest

from app.parsing.parsing_thread import in_parsing_thread


def test_all_texts_are_parsed_on_one_thread_in_their_order() -> None:
    parsed: list[tuple[int, str]] = []

    def parse(text: int) -> int:
        parsed.append((text, current_thread().name))
        return text

    async def scenario() -> list[int]:
        return await asyncio.gather(*(in_parsing_thread(parse, text) for text in range(20)))

    assert asyncio.run(scenario()) == [*range(20)]
    assert [text for text, _ in parsed] == [*range(20)]
    assert len({thread for _, thread in parsed}) == 1


def test_the_error_of_a_text_is_raised() -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        asyncio.run(in_parsing_thread(int, "x"))
