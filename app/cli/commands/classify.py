"""`darkroom classify`: print labels, logits or embeddings, one JSON line a file, in order."""

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from app.bulk.errors import WrongUsage
from app.bulk.outputs import failures
from app.bulk.outputs.earlier_records import EarlierRecords, in_order, names_in
from app.bulk.outputs.origin import Origin
from app.bulk.outputs.results_file import Convert, ResultsFile, partial_of
from app.bulk.outputs.tables import VectorColumn, conversion
from app.bulk.report import readable
from app.bulk.run import GOES_ON, Progress, RecordPrinter, ResultsSink, Run, tasks_of
from app.bulk.sources import buckets
from app.bulk.sources.expansion import Sources
from app.bulk.work import Classification, Task
from app.cli.flags import source_flags
from app.cli.flags.offered_values import complete_files, complete_with
from app.cli.flags.settings_flags import LOCAL, WEIGHTS, add_settings
from app.cli.flags.source_flags import JSON, SourceFlags
from app.cli.standard_output import show
from app.http.problems import read
from app.routes.network_choice import asked
from models.api.schemas import ClassifyOptions
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
    source_flags.declare_servers(parser)
    parser.add_argument("--top-k", type=int, metavar="N", help="classes per image (default: 5)")
    output = parser.add_argument(
        "--output",
        metavar="WHAT",
        help="labels, or logits or embedding of the first network (default: labels)",
    )
    complete_with(output, [each.value for each in NetworkOutput])
    vectors = parser.add_argument(
        "--vector-format",
        metavar="NAME",
        help="of logits and embeddings: numbers or base64 (default: numbers)",
    )
    complete_with(vectors, ["numbers", "base64"])
    out = parser.add_argument(
        "--out",
        "-o",
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

    `options` are the servers, if there are any, and the options of `POST /classify`.
    """
    servers, settings = options.pop("servers"), buckets.allowed(settings, files)
    given = {name: value for name, value in options.items() if value is not None}
    work = Classification(given, timing=out is None)
    try:
        asked(read(ClassifyOptions, given), settings.networks[0])
    except InvalidParameter as error:
        wrong = error.errors[0]
        flag = wrong.path.replace("_", "-")
        meant = f"; did you mean --out {wrong.given}?" if flag == "output" else ""
        raise WrongUsage(f"--{flag}: {wrong.message} (given: {wrong.given}){meant}") from None
    sources = SourceFlags(files, include, exclude, lists, nul).sources()
    total = source_flags.counted(sources)
    answering = Run(settings, work, servers, total)
    if out is None and retry_failed:
        raise WrongUsage("--retry-failed: name the finished file with --out")
    if out is None:
        printer = RecordPrinter(sys.stdout, show, as_json=as_json)
        return answering.answer(tasks_of(iter(sources)), printer)
    path = Path(out)
    if retry_failed and not (answering := replace(answering, total=_failed(path))).total:
        print(f"no image of {path} has failed", file=sys.stderr)
        return ExitCode.OK
    return _written(answering, sources, path, force, given, retry=retry_failed)


def _written(
    run: Run,
    sources: Sources,
    out: Path,
    force: bool,
    given: Mapping[str, Any],
    *,
    retry: bool = False,
) -> int:
    """Write the records that are missing to the file; the summary goes to standard error.

    With `retry` these are the records of the images that have failed.
    """
    chosen = {
        name: getattr(run.settings, name) for name in (*WEIGHTS, "max_pixels", "max_batch_size")
    }
    # A larger limit of pixels may be the reason to try again, and a cache says nothing of records.
    own = {name: value for name, value in chosen.items() if name not in MAY_DIFFER}
    origin = Origin(out, {**given, **own}, "--retry-failed" if retry else "--out")
    convert, left = conversion(out, _vector(given)), tasks_of(iter(sources))
    options = {**given, **chosen, **({"retry": True} if retry else {})}
    is_lines = convert is None
    recorded: Iterator[str] = (each.source.name for each in left)
    earlier = None if retry else _earlier(out, options, sources, origin, force, is_lines)
    started, first, failed = False, 0, 0
    if retry:
        origin.check_options()
        left = failures.only_failed(left, _name, out)
        recorded = (each.source.name for each in left)
        convert = partial(failures.write_merged, out)
    if earlier is not None:
        started = out.exists() and not force
        known = [earlier.failed(each.name) for each in sources if each.name in earlier]
        first, failed = len(known), sum(known)
        left = (each for each in left if each.source.name not in earlier)
        journal = partial_of(out, options)
        recorded = names_in(journal) if journal.exists() else iter(())
        convert = partial(_write_all, sources, out if started else None, convert)
    results = ResultsFile(
        out,
        recorded,
        options,
        replaces=force or retry or started,
        convert=convert,
        check=lambda: failures.check_ended(out) if retry else None,
    )
    if earlier is None:
        first, failed = results.done, results.failed
    failed_before = failed - results.failed
    with Progress(run.total, first, failed) as progress:
        if first < run.total:
            sink = ResultsSink(results, progress, origin if retry or started else None)
            try:
                run.answer(left, sink, GOES_ON)
            except WrongUsage:  # of weights, for instance
                results.abandon()
                raise
            except BaseException:  # re-raised
                results.close()
                raise
    failed = failed_before + results.failed
    if is_lines:  # only JSON Lines can be mended, or go on when they are finished
        origin.keep(results.network)
    told = results.failures()
    results.finish()
    if is_lines and failed:
        told = failures.shown(out, out, failed)
    print(progress.summary(), *filter(None, [told]), sep="\n", file=sys.stderr)
    return ExitCode.FAILED if failed else ExitCode.OK


def _earlier(
    out: Path,
    options: Mapping[str, object],
    sources: Sources,
    origin: Origin,
    force: bool,
    is_lines: bool,
) -> EarlierRecords | None:
    """Return the records of earlier runs whose images are others than now; None without any.

    An interrupted run whose images are the same goes on without them. WrongUsage if other options
    made a finished file, or if images of it are missing now.
    """
    finished = is_lines and not force and out.is_file() and origin.is_known
    journal = partial_of(out, options)
    if not finished and (not journal.exists() or in_order(journal, sources)):
        return None
    try:
        if finished:
            origin.check_options()
            _check_none_is_gone(out, sources)
        files = [*([out] if finished else []), journal]
        return EarlierRecords([file for file in files if file.exists()])
    except (ValueError, LookupError, TypeError):
        raise WrongUsage(f"--out: {out} has other lines than records; name another file") from None


def _check_none_is_gone(out: Path, sources: Sources) -> None:
    now = {readable(each.name) for each in sources}
    if gone := [name for name in names_in(out) if name not in now]:
        more = ", …" if len(gone) > failures.SHOWN else ""
        raise WrongUsage(
            f"--out: {out} has records of {len(gone)} images that are not among the sources any "
            f"more ({', '.join(gone[: failures.SHOWN])}{more}); write to another file, or add "
            "--force to begin anew without them"
        )


def _write_all(
    sources: Sources, finished: Path | None, convert: Convert | None, lines: Path, path: Path
) -> None:
    """Write the records of earlier runs and of this one in the order of the sources."""
    records = EarlierRecords([*([finished] if finished else []), lines])
    names = (each.name for each in sources)
    if convert is None:
        records.write(names, path)
        return
    ordered = path.with_name(f"{path.name}.lines")
    try:
        records.write(names, ordered)
        convert(ordered, path)
    finally:
        ordered.unlink(missing_ok=True)


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
