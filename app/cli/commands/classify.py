"""`darkroom classify`: print labels, logits or embeddings, one JSON line a file, in order."""

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from app.admission import Permit
from app.cli.commands import local_service, sources
from app.cli.commands.command import (
    FILES,
    JSON,
    LOCAL,
    WEIGHTS,
    add_settings,
    complete_files,
    complete_with,
)
from app.cli.commands.errors import WrongUsage
from app.cli.commands.report import human_line, json_line
from app.cli.commands.standard_output import show
from app.http.options import read
from app.intake.request_items import Item
from app.pipeline.outcomes import Answer
from app.responses.records import record
from app.responses.vectors import VectorStyle
from app.routes.network_choice import asked
from app.service import Service
from app.system.terminal import has_colours, is_terminal
from models.api.schemas import ClassifyOptions
from models.domain.errors import InvalidParameter
from models.settings import Settings
from workers.operations import NetworkOutput

EXAMPLES = (
    "darkroom classify photo.jpg photo2.jpg --top-k 1",
    "cat photo.jpg | darkroom classify -",
    "darkroom classify photo.jpg --output embedding --vector-format base64",
)


def declare(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    complete_files(parser.add_argument("files", nargs="+", metavar="FILE", help=FILES))
    parser.add_argument("--top-k", type=int, help="classes per image (default: 5)")
    output = parser.add_argument(
        "--output", help="labels, or logits or embedding of the first network (default: labels)"
    )
    complete_with(output, [each.value for each in NetworkOutput])
    vectors = parser.add_argument(
        "--vector-format", help="of logits and embeddings: numbers or base64 (default: numbers)"
    )
    complete_with(vectors, ["numbers", "base64"])
    parser.add_argument("--json", dest="as_json", action="store_true", help=JSON)
    add_settings(parser, WEIGHTS + LOCAL)


def run(settings: Settings, files: Sequence[str], as_json: bool, **options: Any) -> int:
    """Print the records; the exit code is FAILED when any image failed."""
    given = {name: value for name, value in options.items() if value is not None}
    try:
        wanted = asked(read(ClassifyOptions, given), settings.networks[0])
    except InvalidParameter as error:
        wrong = error.errors[0]
        flag = wrong.path.replace("_", "-")
        raise WrongUsage(f"--{flag}: {wrong.message} (given: {wrong.given})") from None
    sources.check(files)
    vectors = VectorStyle.of(given)
    for_people = is_terminal(sys.stdout) and not as_json
    colours = has_colours(sys.stdout)

    async def work(service: Service, item: Item, permit: Permit) -> Answer:
        return await service.pipeline.answer(item, wanted, permit)

    def print_record(service: Service, answer: Answer) -> None:
        labels = service.model.labels if service.model else None
        made = record(answer, labels, vectors=vectors)
        show(human_line(made, colours=colours) if for_people else json_line(made))

    answering = local_service.answer_each(settings, files, work, print_record, needs_weights=True)
    return local_service.run(answering)
