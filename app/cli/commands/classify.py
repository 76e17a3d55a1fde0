"""`darkroom classify`: print labels, logits or embeddings, a JSON line for each file, in order."""

import argparse
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from app.bulk import journal as records
from app.bulk.errors import WrongUsage
from app.bulk.journal import Convert, Journal, Origin, Records, names_in
from app.bulk.run import Run, printer, tasks_of
from app.bulk.sources import Sources, allowed
from app.bulk.tables import VectorColumn, conversion, write_lines
from app.bulk.work import Classification, Identity
from app.cli.flags import LOCAL, WEIGHTS, add_settings, complete_files, complete_with
from app.cli.image_flags import JSON, add_sources, counted, sources_of
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
    add_sources(parser)
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
    parser.add_argument("--json", dest="as_json", action="store_true", help=JSON)
    add_settings(parser, WEIGHTS + LOCAL)


def run(
    settings: Settings,
    out: str | None,
    force: bool,
    retry_failed: bool,
    as_json: bool,
    **options: Any,
) -> int:
    """Print or write the records; the exit code is FAILED when any image failed.

    `options` are the sources, the servers, if there are any, and the options of `POST /classify`.
    """
    servers, settings = options.pop("servers"), allowed(settings, options["files"])
    sources = sources_of(options)
    given = {name: value for name, value in options.items() if value is not None}
    work = Classification(given, timing=out is None)
    try:
        asked(read(ClassifyOptions, given), settings.networks[0])
    except InvalidParameter as error:
        wrong = error.errors[0]
        flag = wrong.path.replace("_", "-")
        meant = f"; did you mean --out {wrong.given}?" if flag == "output" else ""
        raise WrongUsage(f"--{flag}: {wrong.message} (given: {wrong.given}){meant}") from None
    bulk = Run(settings, work, servers, counted(sources))
    if out is not None:
        return _written(bulk, sources, Path(out), force, given, retry=retry_failed)
    if retry_failed:
        raise WrongUsage("--retry-failed: name the finished file with --out")
    keep = printer(sys.stdout, show, as_json=as_json)
    return bulk.answer(tasks_of(iter(sources)), keep)


def _written(
    run: Run, sources: Sources, out: Path, force: bool, given: Mapping[str, Any], *, retry: bool
) -> int:
    """Write the records that are missing to the file; the summary goes to standard error.

    Missing are the records of images without a record, or with `retry` of images that have failed.
    """
    names = (*WEIGHTS, "max_pixels", "max_batch_size")
    chosen = {name: getattr(run.settings, name) for name in names}
    # A larger limit of pixels may be the reason to try again, and a cache says nothing of records.
    own = {name: value for name, value in chosen.items() if name not in MAY_DIFFER}
    origin = Origin(out, {**given, **own}, "--retry-failed" if retry else "--out")
    vector = _vector(given)
    convert = conversion(out, vector)
    is_lines = convert is None
    if retry and not out.is_file():
        raise WrongUsage(f"--retry-failed: {out} is no finished file")
    mends = retry or (not force and out.is_file() and origin.is_known)
    with TemporaryFile() as unnamed:  # the records of a finished table, until this process ends
        before = out if is_lines else Path(f"/proc/self/fd/{unnamed.fileno()}")
        if mends and not is_lines:
            write_lines(out, before, vector)
        finished = Records([before] if mends else [])
        if mends:
            if finished.size < before.stat().st_size:
                raise WrongUsage(f"--out: {out} has other lines than records; name another file")
            if retry and not finished.n_failed:
                print(f"no image of {out} has failed", file=sys.stderr)
                return ExitCode.OK
            origin.check_options()
            recorded = names_in(before, failed=retry)
            origin.check_present(recorded, (each.name for each in sources))
        if retry:
            run = replace(run, total=finished.n_failed)
        options = {**given, **chosen, **({"retry": True} if retry else {})}
        check = partial(records.check_ended, out) if retry else lambda: None
        with Journal(out, options, replaces=force or mends, check=check) as journal:

            def is_left(name: str) -> bool:
                wanted = finished.failed(name) if retry else name not in finished
                return wanted and name not in journal.earlier

            def begin(network: Identity) -> None:
                if mends:
                    origin.check_network(network)
                journal.begin(network)

            goes_on = mends or journal.done > 0
            known = [each.name for each in sources if not is_left(each.name)] if goes_on else []
            first = journal.done if retry else len(known)
            failed = (
                0 if retry else sum(finished.failed(n) for n in known if n not in journal.earlier)
            )
            left = (each for each in tasks_of(iter(sources)) if is_left(each.source.name))
            summary = run.complete(journal, left, first, failed, begin)
            failed += journal.failed
            origin.keep(journal.network)
            told = "" if is_lines else records.shown(journal.partial, out, failed)
            if goes_on:
                order = names_in(before) if retry else (each.name for each in sources)
                files = [*([before] if mends else []), journal.partial]
                convert = partial(_ordered, files, order, convert)
            journal.finish(convert)
        told = records.shown(out, out, failed) if is_lines else told
        print(summary, *filter(None, [told]), sep="\n", file=sys.stderr)
        return ExitCode.FAILED if failed else ExitCode.OK


def _ordered(
    files: Sequence[Path], names: Iterable[str], convert: Convert | None, _lines: Path, path: Path
) -> None:
    """Write the records of earlier runs and of this run in the order of the images."""
    found = Records(files)
    if convert is None:
        found.write(names, path)
        return
    ordered = path.with_name(f"{path.name}.lines")
    try:
        found.write(names, ordered)
        convert(ordered, path)
    finally:
        ordered.unlink(missing_ok=True)


def _vector(given: Mapping[str, Any]) -> VectorColumn | None:
    output = NetworkOutput(given.get("output", NetworkOutput.LABELS))
    if output is NetworkOutput.LABELS:
        return None
    return VectorColumn(output.value, given.get("vector_format") == "base64")
