"""`darkroom classify`: print labels, logits or embeddings, one JSON line a file, in order."""

import argparse
from collections.abc import Sequence
from typing import Any

from app.admission import Permit
from app.cli.commands import local_service, sources
from app.cli.commands.command import FILES, LOCAL, WEIGHTS, add_settings
from app.cli.commands.errors import WrongUsage
from app.cli.commands.standard_output import show
from app.http.options import read
from app.intake.request_items import Item
from app.pipeline.outcomes import Answer
from app.responses.records import line, record
from app.responses.vectors import VectorStyle
from app.routes.network_choice import asked
from app.service import Service
from models.api.schemas import ClassifyOptions
from models.domain.errors import InvalidParameter
from models.settings import Settings


def declare(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("files", nargs="+", metavar="FILE", help=FILES)
    parser.add_argument("--top-k", type=int, help="classes per image (default: 5)")
    parser.add_argument(
        "--output", help="labels, or logits or embedding of the first network (default: labels)"
    )
    parser.add_argument(
        "--vector-format", help="of logits and embeddings: numbers or base64 (default: numbers)"
    )
    add_settings(parser, WEIGHTS + LOCAL)


def run(settings: Settings, files: Sequence[str], **options: Any) -> int:
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

    async def work(service: Service, item: Item, permit: Permit) -> Answer:
        return await service.pipeline.answer(item, wanted, permit)

    def print_record(service: Service, answer: Answer) -> None:
        labels = service.model.labels if service.model else None
        show(line(record(answer, labels, vectors=vectors)))

    answering = local_service.answer_each(settings, files, work, print_record, needs_weights=True)
    return local_service.run(answering)
