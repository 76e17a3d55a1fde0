"""`darkroom filter`: put images through filters and write the results as files."""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from app.admission import Permit
from app.cli.commands import local_service, sources, targets
from app.cli.commands.command import FILES, LOCAL, add_settings
from app.cli.commands.errors import WrongUsage
from app.http.options import read
from app.intake.filter_options import encoded_there, encoding_of, parsed_json
from app.intake.output_format import output_format
from app.intake.request_items import Item
from app.intake.wanted import Output, Version
from app.pipeline.outcomes import Answer, EncodedImage
from app.responses.records import line, record
from app.service import Service
from models.api.schemas import EncodingOptions
from models.codec import OUTPUT_FORMATS, Encoding
from models.domain.errors import InvalidParameter, ServiceError
from models.settings import Settings
from workers.filters.registry import parse_chain
from workers.operations import FilterChain

OPS = 'filters in order: \'[{"name": "gaussian_blur", "sigma": 2}]\''


def declare(parser: argparse.ArgumentParser) -> None:
    """Add the arguments: the files, the filters, the target, and the options of encoding."""
    parser.add_argument("files", nargs="+", metavar="FILE", help=FILES)
    parser.add_argument("--ops", required=True, help=OPS)
    parser.add_argument(
        "-o",
        "--output",
        required=True,
        help="a file, a folder (made if it is missing; for one file end its name with /), or - "
        "(standard output)",
    )
    parser.add_argument(
        "--force", action="store_true", help="replace existing files; otherwise none is replaced"
    )
    names = [each.value for each in OUTPUT_FORMATS]
    parser.add_argument("--format", choices=names, help="format of the output")
    for field in fields(Encoding):
        text = str(EncodingOptions.model_fields[field.name].description)
        switch: dict[str, Any] = {"action": "store_true"} if field.default is False else {}
        parser.add_argument("--" + field.name.replace("_", "-"), help=text, **switch)
    add_settings(parser, LOCAL)


def run(
    settings: Settings, files: Sequence[str], ops: str, output: str, force: bool, **encoding: Any
) -> int:
    """Write filtered files to `output`, and one JSON line for each to standard error.

    `encoding` has the format and the other encoding options of `POST /filter`. The exit code is
    FAILED when any image failed.
    """
    chain = parsed_ops(ops)
    target = targets.target_of(output, len(files), force)
    wanted = encoding.pop("format") or targets.format_of(target)
    try:
        asked = encoding_of(read(EncodingOptions, {**encoding, "format": wanted}))
        chain = encoded_there(chain, asked, wanted)
    except InvalidParameter as error:
        first = error.errors[0]
        raise WrongUsage(f"--{first.path.replace('_', '-')}: {first.message}") from None
    format_ = output_format(wanted)
    version = Version(chain, Output(format_, asked))
    sources.check(files)
    targets.check(target, files, format_.of)

    async def work(service: Service, item: Item, permit: Permit) -> Answer:
        return await service.pipeline.answer(item, version, permit)

    def keep(_service: Service, answer: Answer) -> None:
        if isinstance(answer.outcome, EncodedImage):
            name = targets.name_for(answer.item.source or "image", answer.outcome.format)
            targets.write(target, name, answer.outcome.file.read())
        print(line(record(answer)).decode(), end="", file=sys.stderr)

    return local_service.run(local_service.answer_each(settings, files, work, keep))


def parsed_ops(ops: str) -> FilterChain:
    """Return the chain of filters that `--ops` describes; WrongUsage says what is wrong with it."""
    try:
        return FilterChain(parse_chain(parsed_json(ops)))
    except ValueError as error:
        raise WrongUsage(f"--ops is not JSON: {error}") from None
    except ServiceError as error:
        raise WrongUsage(f"--ops: {error.detail}") from None
