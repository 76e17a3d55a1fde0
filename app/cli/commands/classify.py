"""`darkroom classify`: print labels, logits or embeddings, one JSON line a file, in order."""

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from app.bulk import session
from app.bulk.engines import choice, local_service
from app.bulk.engines.engine import Task, tasks_of
from app.bulk.engines.work import Classification
from app.bulk.errors import WrongUsage
from app.bulk.outputs import failures
from app.bulk.outputs.origin import Origin
from app.bulk.outputs.results_file import ResultsFile
from app.bulk.outputs.tables import VectorColumn, conversion
from app.bulk.progress import Progress
from app.bulk.results_sink import ResultsSink
from app.bulk.sources import buckets
from app.bulk.sources.expansion import Sources
from app.cli.flags import source_flags
from app.cli.flags.offered_values import complete_files, complete_with
from app.cli.flags.settings_flags import LOCAL, WEIGHTS, add_settings
from app.cli.flags.source_flags import JSON, SourceFlags
from app.cli.record_printer import RecordPrinter
from app.cli.standard_output import show
from models.domain.errors import InvalidParameter
from models.exit_codes import ExitCode
from models.settings import Settings
from workers.operations import NetworkOutput

EXAMPLES = (
    "darkroom classify photo.jpg photo2.jpg --top-k 1",
    "darkroom classify photos/ --out labels.jsonl",
    "cat photo.jpg | darkroom classify -",
    "darkroom classify photo.jpg --output embedding --vector-format base64",
)


MAY_DIFFER = ("max_pixels", "cache_folder")
"""Settings that may differ when images that failed are tried again."""


def declare(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    source_flags.declare(parser)
    source_flags.declare_engine(parser)
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
        help="write records there, when all are done: .csv, .parquet, else JSON Lines; the same "
        "command again continues after an interruption (default: print)",
    )
    complete_files(out)
    parser.add_argument("--force", action="store_true", help="replace an existing --out")
    source_flags.declare_retry(parser)
    parser.add_argument("--json", dest="as_json", action="store_true", help=JSON)
    add_settings(parser, WEIGHTS + LOCAL)


def run(
    settings: Settings,
    files: Sequence[str],
    include: Sequence[str],
    exclude: Sequence[str],
    lists: Sequence[str],
    nul: bool,
    out: str | None,
    force: bool,
    retry_failed: bool,
    as_json: bool,
    **options: Any,
) -> int:
    """Print or write the records; the exit code is FAILED when any image failed.

    `options` are the flags that choose the engine, and the options of `POST /classify`.
    """
    how, settings = source_flags.how_of(options), buckets.allowed(settings, files)
    given = {name: value for name, value in options.items() if value is not None}
    work = Classification(given, settings.networks[0], timing=out is None)
    try:
        work.wanted()
    except InvalidParameter as error:
        wrong = error.errors[0]
        flag = wrong.path.replace("_", "-")
        raise WrongUsage(f"--{flag}: {wrong.message} (given: {wrong.given})") from None
    sources = SourceFlags(files, include, exclude, lists, nul).sources()
    total = source_flags.counted(sources)
    start = choice.starter(settings, work, how, total)
    if out is None and retry_failed:
        raise WrongUsage("--retry-failed: name the finished file with --out")
    if out is None:
        printer = RecordPrinter(sys.stdout, show, as_json=as_json)
        return local_service.run(session.run(settings, start, tasks_of(iter(sources)), printer))
    path = Path(out)
    if retry_failed and not (total := _failed(path)):
        print(f"no image of {path} has failed", file=sys.stderr)
        return ExitCode.OK
    return _written(settings, start, sources, total, path, force, given, retry=retry_failed)


def _written(
    settings: Settings,
    start: session.Start,
    sources: Sources,
    total: int,
    out: Path,
    force: bool,
    given: Mapping[str, Any],
    *,
    retry: bool = False,
) -> int:
    """Write the records that are missing to the file; the summary goes to standard error.

    With `retry` these are the records of the images that have failed.
    """
    chosen = {name: getattr(settings, name) for name in (*WEIGHTS, "max_pixels", "max_batch_size")}
    # A larger limit of pixels may be the reason to try again, and a cache says nothing of records.
    own = {name: value for name, value in chosen.items() if name not in MAY_DIFFER}
    origin = Origin(out, {**given, **own})
    left = tasks_of(iter(sources))
    convert = conversion(out, _vector(given))
    if retry:
        origin.check_options()
        left = failures.only_failed(left, _name, out)
        convert = partial(failures.write_merged, out)
    results = ResultsFile(
        out,
        (each.source.name for each in left),
        {**given, **chosen, **({"retry": True} if retry else {})},
        replaces=force or retry,
        convert=convert,
        check=lambda: failures.check_ended(out) if retry else None,
    )

    def finish() -> None:
        if convert is None or retry:  # only JSON Lines can be mended
            origin.keep(results.network, failed=results.failed)
        results.finish()

    return _continued(settings, start, left, total, results, origin if retry else None, finish)


def _continued(
    settings: Settings,
    start: session.Start,
    left: Iterator[Task],
    total: int,
    results: ResultsFile,
    mended: Origin | None,
    finish: Callable[[], None],
) -> int:
    first = results.done
    with Progress(total, first, results.failed) as progress:
        if first < total:
            sink = ResultsSink(results, progress, mended)
            try:
                local_service.run(session.run(settings, start, left, sink), local_service.GOES_ON)
            except WrongUsage:  # of weights, for instance
                results.abandon()
                raise
            except BaseException:  # re-raised
                results.close()
                raise
    failed = results.failures()
    finish()
    print(progress.summary(), *filter(None, [failed]), sep="\n", file=sys.stderr)
    return ExitCode.FAILED if results.failed else ExitCode.OK


def _name(task: Task) -> str:
    return task.source.name


def _failed(out: Path) -> int:
    """Return the number of images that failed; WrongUsage for a file of another format."""
    if out.suffix.lower() in (".csv", ".parquet"):
        raise WrongUsage("--retry-failed: only JSON Lines can be mended; convert them afterwards")
    try:
        return sum(1 for _ in failures.failed_names(out))
    except FileNotFoundError:
        raise WrongUsage(f"--retry-failed: {out} is no finished file") from None
    except (ValueError, AttributeError, KeyError):
        raise WrongUsage(f"--retry-failed: {out} has other lines than records") from None


def _vector(given: Mapping[str, Any]) -> VectorColumn | None:
    output = NetworkOutput(given.get("output", NetworkOutput.LABELS))
    if output is NetworkOutput.LABELS:
        return None
    return VectorColumn(output.value, given.get("vector_format") == "base64")
