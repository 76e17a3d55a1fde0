"""The text about images that failed names each reason in whole words, and says what to do."""

import pytest

from app.http.problems import LONGEST_MESSAGE
from app.intake.item import Item
from app.pipeline.results.outcomes import Answer
from app.pipeline.results.timings import Timings
from app.responses.inference import failure_of
from models.domain.errors import Undecodable

REASON = "the first bytes are of no format that is read: JPEG, PNG, WebP, GIF, BMP, TIFF and AVIF"


@pytest.mark.parametrize("n", [1, 2, 10, 200])
def test_reasons_end_after_whole_words(n: int) -> None:
    reason = f"{REASON}; convert the image to one of them, and send it again as it is"
    words = {word.strip(":;,") for word in reason.split()}
    error = Undecodable(reason)
    found = failure_of([Answer(Item(each, error), error, Timings()) for each in range(n)])
    assert found is not None
    _, text = found
    assert len(text) <= LONGEST_MESSAGE
    assert text.endswith("Ask for the output ERROR to get the results of the others")
    if n == 1:
        assert reason in text
    for shown in text.split("undecodable, ")[1:]:
        if "…" in shown:
            assert shown.partition("…")[0].split()[-1].strip(";:,") in words
