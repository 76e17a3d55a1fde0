"""`darkroom filter`: put images through filters and write the results as files."""

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from app.bulk.errors import WrongUsage
from app.bulk.outputs import zip_file
from app.bulk.run import RecordPrinter, Run, tasks_of
from app.bulk.sources import buckets
from app.bulk.work import Filtering, Task
from app.cli.commands import filter_folder, targets
from app.cli.commands.targets import Target
from app.cli.flags import LOCAL, add_settings, complete_files
from app.cli.image_flags import JSON, add_chain, add_sources, counted, given_chain, sources_of
from app.http.problems import read
from app.intake.wanted import AS_SOURCE, Version, version_of
from models.api.schemas import EncodingOptions
from models.codec import OUTPUT_FORMATS, Encoding, ImageFormat
from models.domain.errors import InvalidParameter
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
    add_chain(parser)
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
    add_settings(parser, LOCAL)


def run(
    settings: Settings,
    files: Sequence[str],
    ops: str | None,
    op: Sequence[str],
    output: str,
    force: bool,
    retry_failed: bool,
    as_json: bool,
    **encoding: Any,
) -> int:
    """Write filtered files to `output`; the exit code is FAILED when any image failed.

    Images that are arguments have a record each on standard error. For those of folders and lists
    there is a progress bar. `encoding` has the options of `POST /filter` for the encoder, and the
    servers, if there are any.
    """
    servers, settings = encoding.pop("servers"), buckets.allowed(settings, files)
    packs = zip_file.is_zip(output)
    results = str(zip_file.collected(Path(output))) if packs else output
    encoding["files"] = files
    sources = sources_of(encoding, results)
    filters = given_chain(ops, op)
    if packs or not sources.are_named:
        version = _version(filters, encoding, encoding["format"])
        asked = filter_folder.Asked(settings, version, output, force, servers, retry_failed)
        depends_on = {"ops": [ops, op], "retry": retry_failed, **encoding}
        return filter_folder.run(asked, sources, files, depends_on)
    if retry_failed:
        raise WrongUsage("--retry-failed: name the folder or list of the command that failed")
    target = targets.target_of(output, len(files), force)
    version = _version(filters, encoding, encoding["format"] or targets.format_of(target))
    targets.check(target, files, version.output.format.of)
    work = Filtering(version, _Named(target), timing=True)
    printer = RecordPrinter(sys.stderr, sys.stderr.write, as_json=as_json)
    total = counted(sources)
    return Run(settings, work, servers, total).answer(tasks_of(iter(sources)), printer)


@dataclass(frozen=True, slots=True)
class _Named:
    """Destination of images that are arguments: a file, a folder or standard output."""

    target: Target

    def write(self, task: Task, format_: ImageFormat, data: bytes) -> str | None:
        name = targets.name_for(task.source.name, format_)
        targets.write(self.target, name, data)
        return None if self.target.is_standard_output else str(self.target.file(name))

    def planned(self, _task: Task) -> str | None:
        return None


def _version(filters: FilterChain, encoding: Mapping[str, Any], format_: str | None) -> Version:
    """Return what is wanted of each image; WrongUsage names the option that is wrong."""
    try:
        asked = read(EncodingOptions, {**encoding, "format": format_})
        return version_of(filters, asked, AS_SOURCE)
    except InvalidParameter as error:
        first = error.errors[0]
        raise WrongUsage(f"--{first.path.replace('_', '-')}: {first.message}") from None
