"""`darkroom filter` for the images of folders and lists: mirrored, and continued after a stop."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from app.bulk import session
from app.bulk.engines import choice, local_service
from app.bulk.engines.choice import How
from app.bulk.engines.engine import Task
from app.bulk.engines.filtering import Filtering, InFolder
from app.bulk.errors import WrongUsage
from app.bulk.outputs import failures
from app.bulk.outputs.folder import ResultsFolder
from app.bulk.outputs.places import Places
from app.bulk.outputs.results_file import ResultsFile
from app.bulk.progress import Progress
from app.bulk.results_sink import ResultsSink
from app.bulk.sources.expansion import Sources
from app.bulk.sources.source import Source
from app.intake.output_format import FixedFormat
from app.intake.wanted import Version
from models.exit_codes import ExitCode
from models.settings import Settings

MOST_AHEAD = 4096
"""More images than any engine has under way: so many after the last record may have a result that
an interrupted run has written without a record."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What the arguments ask for: a `version` of every image, in the folder `output`."""

    settings: Settings
    version: Version
    output: str
    force: bool
    how: How


def run(asked: Asked, sources: Sources, roots: Sequence[str], options: Mapping[str, object]) -> int:
    """Write the results that are missing; return the exit code.

    `options` are what the results depend on; `roots` are the arguments that name sources. The
    records of failures are in a file beside the folder, if there are any.
    """
    if asked.output == "-":
        raise WrongUsage("--output: many images need a folder, not standard output")
    folder = ResultsFolder(Path(asked.output), asked.force)
    folder.check(roots)
    wanted = _wanted(asked, sources)
    file = failures.beside(folder.path)
    begun = {**options, "max_pixels": asked.settings.max_pixels, "output": asked.output}
    results = ResultsFile(
        file,
        (source.name for source, _ in wanted),
        begun,
        replaces=True,
        convert=failures.write_failures,
    )
    try:
        code = _continued(asked, sources, results, folder, wanted)
    except WrongUsage:
        results.abandon()
        raise
    except BaseException:  # re-raised
        results.close()
        raise
    if not results.failed:
        file.unlink()
    return code


def _continued(
    asked: Asked,
    sources: Sources,
    results: ResultsFile,
    folder: ResultsFolder,
    left: Iterator[tuple[Source, str]],
) -> int:
    first = results.done
    if results.resumed:
        total = sources.count()
    else:
        total = folder.check_targets(_wanted(asked, sources), sources)

    def tasks() -> Iterator[Task]:
        for number, (source, target) in enumerate(left, first):
            again = results.resumed and number < first + MOST_AHEAD
            yield Task(number, source, target, replaces=again)

    work = Filtering(asked.version, InFolder(folder))

    start = choice.starter(asked.settings, work, asked.how, total)
    with Progress(total, first, results.failed) as progress:
        if first < total:
            sink = ResultsSink(results, progress)
            local_service.run(session.run(asked.settings, start, tasks(), sink))
    results.finish()
    print(progress.summary(), file=sys.stderr)
    return ExitCode.FAILED if results.failed else ExitCode.OK


def _wanted(asked: Asked, sources: Sources) -> Iterator[tuple[Source, str]]:
    """Yield every image with the file for its result, relative to the folder of results."""
    format_ = asked.version.output.format
    fixed = format_.format if isinstance(format_, FixedFormat) else None
    places = Places(fixed, one_folder=sources.is_one_folder)
    return ((source, places.target(source.place)) for source in sources)
