import base64
import json

from hypothesis import given, settings
from hypothesis import strategies as st

from app.pipeline.encoded_files import EncodedFile
from app.responses.records import PIECE, InlineImages


@settings(max_examples=30)
@given(st.lists(st.binary(max_size=100), max_size=4), st.text())
def test_the_text_is_what_it_would_be_with_base64_in_it(images: list[bytes], text: str) -> None:
    inline = InlineImages()
    marked = json.dumps([text, *(inline.add(EncodedFile(each)) for each in images)]).encode()
    expected = json.dumps([text, *(base64.b64encode(each).decode() for each in images)]).encode()
    assert b"".join(inline.pieces(marked)) == expected
    assert inline.size(marked) == len(expected)


def test_a_large_image_is_encoded_in_pieces() -> None:
    inline, data = InlineImages(), bytes(range(256)) * (PIECE // 64)
    pieces = list(inline.pieces(inline.add(EncodedFile(data)).encode()))
    assert max(map(len, pieces)) == PIECE // 3 * 4
    assert base64.b64decode(b"".join(pieces)) == data
