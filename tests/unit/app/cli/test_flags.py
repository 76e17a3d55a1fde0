"""The chain of a command, from JSON and from the short form."""

import pytest

from app.bulk.errors import WrongUsage
from app.cli.image_flags import given_chain

JSON = '[{"name": "gaussian_blur", "sigma": 2}, {"name": "sepia"}]'


@pytest.mark.parametrize(
    ("ops", "op"),
    [
        (JSON, []),
        ("gaussian_blur:sigma=2,sepia", []),
        (None, ["gaussian_blur:sigma=2", "sepia"]),
        (None, ["gaussian_blur:sigma=2,sepia"]),
    ],
)
def test_all_spellings_make_the_same_chain(ops: str | None, op: list[str]) -> None:
    assert given_chain(ops, op) == given_chain(JSON, [])


@pytest.mark.parametrize(
    ("ops", "op", "messages"),
    [
        (
            None,
            ["sepia", "gaussian_blur:sigma=-3"],
            ["--op: gaussian_blur: sigma: a number from 0.1 to 100 px is needed, not -3"],
        ),
        (
            "gaussian_blur:sigm=3,median:size=4",
            [],
            [
                "--ops: gaussian_blur: sigm: unknown parameter; did you mean 'sigma'?",
                "--ops: median: size: an odd whole number from 3 to 101 px is needed, not 4",
            ],
        ),
        ("sepai", [], ["--ops: no filter 'sepai'; did you mean 'sepia'?"]),
        (None, ["sigma=2"], ["--op: a filter is needed before the parameter 'sigma=2'"]),
        ("[{", [], ["--ops: it begins as JSON, but is none"]),
        ("{}", [], ["--ops: a list of 1 to 32 filters is needed"]),
        ("[3]", [], ['--ops: an object with a "name" is needed']),
    ],
)
def test_errors_name_the_flag_the_filter_the_parameter_and_what_is_allowed(
    ops: str | None, op: list[str], messages: list[str]
) -> None:
    with pytest.raises(WrongUsage) as raised:
        given_chain(ops, op)
    for message in messages:
        assert message in str(raised.value)
