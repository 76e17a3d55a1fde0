"""One list of output formats, `OUTPUT_FORMATS`: everything that names them is compared with it."""

import argparse
import re
from pathlib import Path
from typing import get_args

import numpy as np

from app.cli.commands import filter as command
from models.api.schemas import FormatName
from models.codec import ENCODABLE, OUTPUT_FORMATS, Encoding, encode, identify
from models.codec.costs import encode_cost
from models.domain.image import Image

PAGE = Path(__file__).parents[2] / "docs/formats.md"

NAMES = {each.value for each in OUTPUT_FORMATS}


def test_the_api_the_command_line_and_the_page_offer_every_output_format() -> None:
    assert set(get_args(FormatName)) == NAMES | {"jpg"}
    parser = argparse.ArgumentParser()
    command.declare(parser)
    choices = next(a.choices for a in parser._actions if "--format" in a.option_strings)
    assert choices is not None
    assert set(choices) == NAMES
    row = next(r for r in PAGE.read_text().splitlines() if r.startswith("| `format` |"))
    assert set(re.findall(r"`([a-z]+)`", row)) == NAMES | {"format"}


def test_every_output_format_is_written_and_recognised_and_has_a_cost() -> None:
    for format_ in ENCODABLE:
        image = Image(np.full((8, 8, 3), 127, np.uint8))
        assert identify(encode(image, format_)) is format_
        assert encode_cost(1_000_000, format_, Encoding()) > 0
