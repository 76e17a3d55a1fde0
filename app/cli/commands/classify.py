"""`darkroom classify`: print the labels of images, one JSON line per file, in order."""

import argparse
from collections.abc import Sequence

from app.admission import Permit
from app.cli.commands import local_service, sources
from app.cli.commands.command import FILES, LOCAL, WEIGHTS, add_settings
from app.cli.commands.errors import WrongUsage
from app.cli.commands.standard_output import show
from app.http.options import read
from app.intake.request_items import Item
from app.pipeline.outcomes import Answer
from app.responses.records import line, record
from app.service import Service
from models.api.schemas import ClassifyOptions
from models.domain.errors import InvalidParameter
from models.settings import Settings
from workers.operations import Classify


def declare(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("files", nargs="+", metavar="FILE", help=FILES)
    parser.add_argument("--top-k", type=int, default=5, help="classes per image (default: 5)")
    add_settings(parser, WEIGHTS + LOCAL)


def run(settings: Settings, files: Sequence[str], top_k: int) -> int:
    """Print the records; the exit code is FAILED when any image failed."""
    try:
        operation = Classify(read(ClassifyOptions, {"top_k": top_k}).top_k)
    except InvalidParameter as error:
        raise WrongUsage(f"--top-k: {error.errors[0].message} (given: {top_k})") from None
    sources.check(files)

    async def work(service: Service, item: Item, permit: Permit) -> Answer:
        return await service.pipeline.answer(item, operation, permit)

    def print_record(service: Service, answer: Answer) -> None:
        labels = service.model.labels if service.model else None
        show(line(record(answer, labels)))

    answering = local_service.answer_each(settings, files, work, print_record, needs_weights=True)
    return local_service.run(answering)
