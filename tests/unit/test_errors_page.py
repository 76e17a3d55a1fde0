"""`docs/errors.md` lists exactly the codes that the program answers, each with its status."""

import re
from collections.abc import Iterator
from pathlib import Path

from app.http.problems import HTTP_CODES, OTHER_CODE
from models.domain.errors import ServiceError

PAGE = Path(__file__).parents[2] / "docs/errors.md"
ROW = re.compile(r"^\| `(\w+)` \| (\w+) \| (.+) \| (.+) \| (yes|no|) ?\|$", re.MULTILINE)


def kinds(kind: type[ServiceError] = ServiceError) -> Iterator[type[ServiceError]]:
    """Yield a class of errors and all classes that derive from it."""
    yield kind
    for each in kind.__subclasses__():
        yield from kinds(each)


def expected() -> dict[str, str]:
    """Return the status of each code, as the page writes it."""
    own = {kind.code: str(kind.status) for kind in kinds()}
    framework = {code: str(status) for status, code in HTTP_CODES.items()}
    return own | framework | {OTHER_CODE: "other"}


def test_every_code_has_its_row_with_its_status() -> None:
    listed = {code: status for code, status, *_ in ROW.findall(PAGE.read_text())}
    assert listed == expected()


def test_the_page_says_which_errors_a_client_may_repeat() -> None:
    repeats = {code: repeat for code, *_, repeat in ROW.findall(PAGE.read_text())}
    for kind in kinds():
        wanted = {True: "yes", False: "no"}[kind.retryable]
        assert repeats[kind.code] == ("" if kind.code == "cancelled" else wanted), kind.code
