"""`darkroom classify`: print labels, logits or embeddings, one JSON line a file, in order."""

import argparse
import hashlib
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from app.admission import Permit
from app.cli.commands import expansion, local_service, sources
from app.cli.commands.command import (
    JSON,
    LOCAL,
    WEIGHTS,
    add_settings,
    complete_files,
    complete_with,
)
from app.cli.commands.errors import WrongUsage
from app.cli.commands.progress import Progress
from app.cli.commands.report import human_line, json_line
from app.cli.commands.results_file import ResultsFile
from app.cli.commands.standard_output import show
from app.http.options import read
from app.intake.item import Item
from app.pipeline.outcomes import Answer
from app.responses.records import record
from app.responses.vectors import VectorStyle
from app.routes.network_choice import asked
from app.service import Service
from app.system.terminal import has_colours, is_terminal
from models.api.schemas import ClassifyOptions, Record
from models.domain.errors import InvalidParameter, ServiceError
from models.exit_codes import ExitCode
from models.networks.served import Model
from models.settings import Settings
from workers.operations import NetworkOutput

EXAMPLES = (
    "darkroom classify photo.jpg photo2.jpg --top-k 1",
    "darkroom classify photos/ --out labels.jsonl",
    "cat photo.jpg | darkroom classify -",
    "darkroom classify photo.jpg --output embedding --vector-format base64",
)


def declare(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    expansion.declare(parser)
    parser.add_argument("--top-k", type=int, help="classes per image (default: 5)")
    output = parser.add_argument(
        "--output", help="labels, or logits or embedding of the first network (default: labels)"
    )
    complete_with(output, [each.value for each in NetworkOutput])
    vectors = parser.add_argument(
        "--vector-format", help="of logits and embeddings: numbers or base64 (default: numbers)"
    )
    complete_with(vectors, ["numbers", "base64"])
    out = parser.add_argument(
        "--out",
        metavar="FILE",
        help="write JSON Lines there, when all are done; the same command again continues after "
        "an interruption (default: print)",
    )
    complete_files(out)
    parser.add_argument("--force", action="store_true", help="replace an existing --out")
    parser.add_argument("--json", dest="as_json", action="store_true", help=JSON)
    add_settings(parser, WEIGHTS + LOCAL)


def run(
    settings: Settings,
    files: Sequence[str],
    include: Sequence[str],
    exclude: Sequence[str],
    lists: Sequence[str],
    out: str | None,
    force: bool,
    as_json: bool,
    **options: Any,
) -> int:
    """Print or write the records; the exit code is FAILED when any image failed."""
    given = {name: value for name, value in options.items() if value is not None}
    try:
        wanted = asked(read(ClassifyOptions, given), settings.networks[0])
    except InvalidParameter as error:
        wrong = error.errors[0]
        flag = wrong.path.replace("_", "-")
        raise WrongUsage(f"--{flag}: {wrong.message} (given: {wrong.given})") from None
    files = expansion.expanded(files, include, exclude, lists)
    sources.check(files)
    vectors = VectorStyle.of(given)

    async def work(service: Service, item: Item, permit: Permit) -> Answer:
        return await service.pipeline.answer(item, wanted, permit)

    def made(service: Service, answer: Answer) -> Record:
        labels = service.model.labels if service.model else None
        return record(answer, labels, vectors=vectors)

    if out is None:
        return _printed(settings, files, work, made, as_json)
    chosen = {name: getattr(settings, name) for name in (*WEIGHTS, "max_pixels")}
    results = ResultsFile(Path(out), files, {**given, **chosen}, replaces=force)
    return _written(settings, files, work, made, results)


def _printed(
    settings: Settings,
    files: Sequence[str],
    work: local_service.ItemWork,
    made: Callable[[Service, Answer], Record],
    as_json: bool,
) -> int:
    """Print the records to standard output."""
    for_people = is_terminal(sys.stdout) and not as_json
    colours = has_colours(sys.stdout)

    def show_record(service: Service, answer: Answer) -> None:
        found = made(service, answer)
        show(human_line(found, colours=colours) if for_people else json_line(found))

    answering = local_service.answer_each(settings, files, work, show_record, needs_weights=True)
    return local_service.run(answering)


def _written(
    settings: Settings,
    files: Sequence[str],
    work: local_service.ItemWork,
    made: Callable[[Service, Answer], Record],
    results: ResultsFile,
) -> int:
    """Write the records that are missing to the file; the summary goes to standard error."""
    first = results.done
    with Progress(len(files), first, results.failed) as progress:

        def keep(service: Service, answer: Answer) -> None:
            failed = isinstance(answer.outcome, ServiceError)
            if results.done == first and service.model is not None:
                results.begin(_identity(service.model))
            results.add(json_line(made(service, answer)), failed)
            progress.add(failed)

        if first < len(files):
            answering = local_service.answer_each(
                settings, files[first:], work, keep, needs_weights=True, first=first
            )
            try:
                local_service.run(answering)
            except WrongUsage:  # of weights, for instance
                results.abandon()
                raise
    results.finish()
    print(progress.summary(), file=sys.stderr)
    return ExitCode.FAILED if results.failed else ExitCode.OK


def _identity(model: Model) -> dict[str, object]:
    """Return the properties of a loaded network that its records depend on.

    The options do not say them all: `--weights auto` takes the weights that can be had, and the
    content of a file of labels may change.
    """
    names = json.dumps([model.labels.labels, model.labels.wnids]).encode()
    return {
        "network": model.record.name,
        "weights": model.record.sha256,
        "labels": hashlib.sha256(names).hexdigest(),
        "preprocessing": model.record.preprocessing,
        "precision": model.record.precision,
    }
