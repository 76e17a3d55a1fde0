"""`darkroom filter`: put images through filters and write the results as files.

Images that are arguments have a record each on standard error. The results of folders and lists
mirror their folders, behind a progress bar, and the same command goes on after a stop.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from app.bulk import folder as results
from app.bulk import journal as records
from app.bulk.arrays import are_arrays, filter_array
from app.bulk.errors import WrongUsage
from app.bulk.folder import Places, ResultFile, ResultsFolder, format_named
from app.bulk.journal import Journal, Origin, Records, names_in
from app.bulk.run import Run, printer
from app.bulk.sources import Sources, allowed
from app.bulk.walk import Task
from app.bulk.work import Filtering
from app.cli.flags import LOCAL, add_settings, complete_files
from app.cli.image_flags import JSON, add_chain, add_sources, counted, given_chain, sources_of
from app.cli.standard_output import show
from app.http.problems import read
from app.intake.presets import read_presets
from app.intake.wanted import AS_SOURCE, Version, chain_of, pictured, version_of
from models.api.schemas import EncodingOptions, FilterOptions
from models.codec import OUTPUT_FORMATS, Encoding, ImageFormat
from models.domain.errors import InvalidParameter
from models.exit_codes import ExitCode
from models.settings import Settings
from workers.operations import FilterChain

EXAMPLES = (
    "darkroom filter photo.jpg --ops sepia -o sepia.jpg",
    "darkroom filter photo.jpg photo2.jpg --op gaussian_blur:sigma=2 --op grayscale -o made/",
    "darkroom filter photo.jpg --ops 'resize:width=100,height=50,invert' -o small.webp",
    "darkroom filter photos/ --op invert -o inverted.zip",
)


def declare(parser: argparse.ArgumentParser) -> None:
    """Add the arguments: the files, the filters, the target, and the options of encoding."""
    add_sources(parser)
    text = "filters and output options under this name in the file of --presets, also for --server"
    add_chain(parser).add_argument("--preset", metavar="NAME", help=text)
    output = parser.add_argument(
        "-o",
        "--output",
        "--out",
        required=True,
        metavar="PATH",
        help="a file, a folder (made if it is missing; for one file end its name with /), a ZIP "
        "(.zip), or - (standard output)",
    )
    complete_files(output)
    parser.add_argument(
        "--force", action="store_true", help="replace existing files; otherwise none is replaced"
    )
    text = "keep the 16 bits of a PNG or TIFF; the result is a PNG, TIFF or .npy file"
    parser.add_argument("--depth", type=int, choices=(16,), help=text)
    parser.add_argument("--json", dest="as_json", action="store_true", help=JSON)
    names = [each.value for each in OUTPUT_FORMATS]
    group = parser.add_argument_group("encoding of the results")
    text = "format of the output (default: that of the output's name, else that of the source)"
    group.add_argument("--format", choices=names, metavar="NAME", help=text)
    for field in fields(Encoding):
        text = str(EncodingOptions.model_fields[field.name].description)
        switch: dict[str, Any] = (
            {"action": "store_true"} if field.default is False else {"metavar": "VALUE"}
        )
        group.add_argument("--" + field.name.replace("_", "-"), help=text, **switch)
    add_settings(parser, (*LOCAL, "presets"))


def run(
    settings: Settings,
    files: Sequence[str],
    ops: str | None,
    op: Sequence[str],
    preset: str | None,
    output: str,
    force: bool,
    depth: int | None,
    retry_failed: bool,
    as_json: bool,
    **encoding: Any,
) -> int:
    """Write filtered files to `output`; the exit code is FAILED when any image failed.

    `encoding` has the options of `POST /filter` for the encoder, and the servers, if there are any.
    """
    if depth or are_arrays(files, output):
        given = {"retry_failed": retry_failed, "preset": preset, **encoding}
        useless = [name for name, value in given.items() if value]
        if len(files) != 1 or useless:
            what = f"--{useless[0].replace('_', '-')} has" if useless else "other files have"
            raise WrongUsage(f"an array is filtered alone; {what} no meaning for it")
        paths, most = (Path(files[0]), Path(output)), settings.max_pixels
        try:
            chain = pictured(given_chain(ops, op).filters, None)
            filter_array(*paths, chain, deep=depth == 16, max_pixels=most, replaces=force)
        except InvalidParameter as error:
            raise WrongUsage(str(error)) from None
        return ExitCode.OK
    servers, settings = encoding.pop("servers"), allowed(settings, files)
    archive = Path(output) if results.is_zip(output) else None
    path = Path(output) if archive is None else results.collected(archive)
    if preset is not None:
        ops = _expand(settings, preset, encoding)
    encoding["files"] = files
    sources = sources_of(encoding, str(path))
    filters, folder = given_chain(ops, op), ResultsFolder(path, force)
    if archive is not None or not sources.are_named:
        if output == "-":
            raise WrongUsage("--output: many images need a folder, not standard output")
        version = _version(filters, encoding, encoding["format"])
        folder.check(files)
        given = {"ops": [ops, op], **encoding}
        bulk = Run(settings, Filtering(version, folder.write), servers, 0)
        return _mirrored(
            bulk, version, sources, folder, archive, given, files, output, retry_failed
        )
    if retry_failed:
        raise WrongUsage("--retry-failed: name the folder or list of the command that failed")
    if path.is_dir() or output.endswith("/") or len(files) > 1:
        is_file = path.exists() or format_named(path) is not None
        if not path.is_dir() and not output.endswith("/") and (output == "-" or is_file):
            raise WrongUsage(f"--output: {output} is no folder, and there are {len(files)} files")
        version = _version(filters, encoding, encoding["format"])
        folder.check(files)
        targets = (each.target for each in _tasks(sources, path, version))
        results.check_targets(targets, (each.name for each in sources), replaces=force)
        work = Filtering(version, folder.write, timing=True)
    else:
        version = _version(filters, encoding, encoding["format"] or format_named(path))
        file = ResultFile(path, force)
        if output != "-":
            file.check(files[0], version.format.of)
        work = Filtering(version, _shown if output == "-" else file.write, timing=True)
    keep = printer(sys.stderr, sys.stderr.write, as_json=as_json)
    total = counted(sources)
    return Run(settings, work, servers, total).answer(_tasks(sources, path, version), keep)


def _expand(settings: Settings, preset: str, encoding: dict[str, Any]) -> str:
    """Return the chain of a preset as JSON, and add its output options to `encoding`."""
    flags = {n: given for n, given in encoding.items() if n in EncodingOptions.model_fields}
    asked = {"preset": preset, **{n: given for n, given in flags.items() if given}}
    try:
        found = read_presets(settings.presets).expanded(asked)
        options = read(FilterOptions, found)
        chain = chain_of(options)
    except (ValueError, InvalidParameter) as error:
        raise WrongUsage(f"--preset: {error}") from None
    encoding.update(options.model_dump(include={*EncodingOptions.model_fields}, exclude_none=True))
    ops = [each.model_dump(mode="json", exclude_unset=True) for each in chain.filters]
    return json.dumps(ops)


def _mirrored(
    run: Run,
    version: Version,
    sources: Sources,
    folder: ResultsFolder,
    archive: Path | None,
    given: Mapping[str, object],
    roots: Sequence[str],
    output: str,
    retry: bool,
) -> int:
    """Write the results that are missing; return the exit code.

    Results depend on the options `given`; `roots` are the arguments that name sources. The records
    of failures are in a file beside the folder, if there are any. Missing are the results of images
    without a record in an interrupted run, and results
    that are not in the folder of a run that has
    ended, which has grown.
    """
    if archive is not None and retry:
        raise WrongUsage("--retry-failed: a ZIP cannot be mended; filter into a folder")
    path, force = folder.path, folder.replaces
    file = records.beside(archive or path)
    origin = Origin(file, given, "--retry-failed" if retry else "--output")
    if retry and not file.exists():
        if not path.is_dir():
            raise WrongUsage(
                f"--retry-failed: {path} has no results; name the folder of earlier ones"
            )
        records.check_ended(file)
        print(f"{file} does not exist: no image has failed", file=sys.stderr)
        return ExitCode.OK
    own = {**given, "retry": retry, "max_pixels": run.settings.max_pixels, "output": output}
    resumed = records.partial_of(file, own).exists()
    grows = not (resumed or retry or force or archive is not None)
    grows = grows and origin.is_known and path.is_dir()
    if retry or grows:
        origin.check_options()

    def tasks() -> Iterator[Task]:
        return _tasks(sources, path, version)

    def check() -> None:
        """Raise WrongUsage if a result would replace a file.

        A command that is stopped meanwhile must be checked again, because a command that goes on
        may replace what the earlier command may have written.
        """
        if archive is not None:
            results.check_zip(archive, roots, replaces=force)
        elif retry:
            records.check_ended(file)
        else:
            targets = (each.target for each in tasks())
            results.check_targets(
                targets, (each.name for each in sources), replaces=checked.replaces
            )

    # Results that a run may have written after its last record are there, and are written again.
    checked = ResultsFolder(path, force or resumed or grows)
    failed = Records([file] if retry else [])
    with Journal(file, own, replaces=True, check=check) as journal:

        def is_left(task: Task) -> bool:
            name = task.source.name
            if retry:
                return failed.failed(name) and name not in journal.earlier
            if grows or (name in journal.earlier and not journal.earlier.failed(name)):
                return not checked.has(task.source, task.target)
            return name not in journal.earlier

        first = journal.done
        if retry:
            total = failed.n_failed
            origin.check_present(names_in(file), (each.name for each in sources))
        else:
            total = counted(sources)
            if resumed or grows:
                first = sum(not is_left(each) for each in tasks())
        run = replace(run, work=Filtering(version, checked.write), total=total)
        summary = run.complete(journal, filter(is_left, tasks()), first, 0)
        told = records.shown(journal.partial, file, journal.failed)
        print(summary, *filter(None, [told]), sep="\n", file=sys.stderr)
        if archive is not None:
            results.pack(archive, replaces=force)
        else:
            origin.keep({})
        journal.finish(records.write_failures)
    if not journal.failed:
        file.unlink()
    if archive is not None:
        results.discard(archive)
    return ExitCode.FAILED if journal.failed else ExitCode.OK


def _shown(_target: str, _format: ImageFormat, data: bytes) -> None:
    show(data)


def _tasks(sources: Sources, folder: Path, version: Version) -> Iterator[Task]:
    """Yield every image with the file for its result, if that is a file of the folder."""
    animated = version.encoding.frames == "all"
    places = Places(folder, version.format.format, animated=animated)
    for number, source in enumerate(sources):
        yield Task(number, source, places.target(source.place))


def _version(filters: FilterChain, encoding: Mapping[str, Any], format_: str | None) -> Version:
    """Return the wanted version of each image; WrongUsage names the option that is wrong."""
    try:
        asked = read(EncodingOptions, {**encoding, "format": format_})
        return version_of(filters, asked, AS_SOURCE)
    except InvalidParameter as error:
        first = error.errors[0]
        raise WrongUsage(f"--{first.path.replace('_', '-')}: {first.message}") from None
