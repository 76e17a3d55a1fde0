"""`darkroom filter`: put images through filters and write the results as files."""

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from app.admission import Permit
from app.cli.commands import chain, expansion, local_service, sources, targets
from app.cli.commands.command import JSON, LOCAL, add_settings, complete_files
from app.cli.commands.errors import WrongUsage
from app.cli.commands.report import human_line, json_line
from app.http.options import read
from app.intake.filter_options import encoded_there, encoding_of
from app.intake.item import Item
from app.intake.output_format import output_format
from app.intake.wanted import Output, Version
from app.pipeline.outcomes import Answer, EncodedImage
from app.responses.records import record
from app.service import Service
from app.system.terminal import has_colours, is_terminal
from models.api.schemas import EncodingOptions
from models.codec import OUTPUT_FORMATS, Encoding
from models.domain.errors import InvalidParameter
from models.settings import Settings
from workers.operations import FilterChain

EXAMPLES = (
    "darkroom filter photo.jpg --ops sepia -o sepia.jpg",
    "darkroom filter photo.jpg photo2.jpg --op gaussian_blur:sigma=2 --op grayscale -o made/",
    "darkroom filter photo.jpg --ops 'resize:width=100,height=50,invert' -o small.webp",
)


def declare(parser: argparse.ArgumentParser) -> None:
    """Add the arguments: the files, the filters, the target, and the options of encoding."""
    expansion.declare(parser)
    chain.declare(parser, required=True)
    output = parser.add_argument(
        "-o",
        "--output",
        required=True,
        help="a file, a folder (made if it is missing; for one file end its name with /), or - "
        "(standard output)",
    )
    complete_files(output)
    parser.add_argument(
        "--force", action="store_true", help="replace existing files; otherwise none is replaced"
    )
    parser.add_argument("--json", dest="as_json", action="store_true", help=JSON)
    names = [each.value for each in OUTPUT_FORMATS]
    group = parser.add_argument_group("encoding of the results")
    text = "format of the output (default: that of the output's name, else that of the source)"
    group.add_argument("--format", choices=names, help=text)
    for field in fields(Encoding):
        text = str(EncodingOptions.model_fields[field.name].description)
        switch: dict[str, Any] = {"action": "store_true"} if field.default is False else {}
        group.add_argument("--" + field.name.replace("_", "-"), help=text, **switch)
    add_settings(parser, LOCAL)


def run(
    settings: Settings,
    files: Sequence[str],
    include: Sequence[str],
    exclude: Sequence[str],
    lists: Sequence[str],
    ops: str | None,
    op: Sequence[str],
    output: str,
    force: bool,
    as_json: bool,
    **encoding: Any,
) -> int:
    """Write filtered files to `output`, and one JSON line for each to standard error.

    `encoding` has the format and the other encoding options of `POST /filter`. The exit code is
    FAILED when any image failed.
    """
    has_several = bool(lists) or any(Path(each).is_dir() for each in files)
    files = expansion.expanded(files, include, exclude, lists, results=output)
    filters = chain.given_chain(ops, op)
    assert filters is not None  # argparse requires one of the flags
    target = targets.target_of(output, len(files) + has_several, force)
    version = _version(filters, encoding, encoding["format"] or targets.format_of(target))
    sources.check(files)
    targets.check(target, files, version.output.format.of)

    async def work(service: Service, item: Item, permit: Permit) -> Answer:
        return await service.pipeline.answer(item, version, permit)

    def keep(_service: Service, answer: Answer) -> None:
        name = None
        if isinstance(answer.outcome, EncodedImage):
            name = targets.name_for(answer.item.source or "image", answer.outcome.format)
            targets.write(target, name, answer.outcome.file.read())
        place = str(target.file(name)) if name and not target.is_standard_output else None
        _report(answer, place, as_json)

    return local_service.run(local_service.answer_each(settings, files, work, keep))


def _version(filters: FilterChain, encoding: Mapping[str, Any], format_: str | None) -> Version:
    """Return what is wanted of each image; WrongUsage names the option that is wrong."""
    try:
        asked = encoding_of(read(EncodingOptions, {**encoding, "format": format_}))
        return Version(
            encoded_there(filters, asked, format_), Output(output_format(format_), asked)
        )
    except InvalidParameter as error:
        first = error.errors[0]
        raise WrongUsage(f"--{first.path.replace('_', '-')}: {first.message}") from None


def _report(answer: Answer, place: str | None, as_json: bool) -> None:
    """Write the record to standard error: for people on a terminal, else JSON."""
    made = record(answer)
    if is_terminal(sys.stderr) and not as_json:
        text = human_line(made, place, colours=has_colours(sys.stderr))
    else:
        text = json_line(made).decode()
    print(text, end="", file=sys.stderr)
