"""`darkroom filter` for the images of folders and lists: mirrored, and continued after a stop."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from app.bulk.engine import MOST_AHEAD
from app.bulk.errors import WrongUsage
from app.bulk.outputs import failures, zip_file
from app.bulk.outputs.earlier_records import in_order
from app.bulk.outputs.folder import ResultsFolder
from app.bulk.outputs.origin import Origin
from app.bulk.outputs.places import Places
from app.bulk.outputs.results_file import ResultsFile, partial_of
from app.bulk.run import GOES_ON, Progress, ResultsSink, Run
from app.bulk.sources.expansion import Sources
from app.bulk.sources.source import Source
from app.bulk.work import Filtering, InFolder, Task
from app.cli.flags import source_flags
from app.intake.wanted import FixedFormat, Version
from models.exit_codes import ExitCode
from models.settings import Settings


@dataclass(frozen=True, slots=True)
class Asked:
    """What the arguments ask for: a `version` of every image, in the folder or ZIP `output`."""

    settings: Settings
    version: Version
    output: str
    force: bool
    servers: Sequence[str]
    retry: bool = False

    @property
    def archive(self) -> Path | None:
        """Return the ZIP that results are packed into, or None where they are in a folder."""
        return Path(self.output) if zip_file.is_zip(self.output) else None


def run(asked: Asked, sources: Sources, roots: Sequence[str], options: Mapping[str, object]) -> int:
    """Write the results that are missing; return the exit code.

    `options` are what the results depend on; `roots` are the arguments that name sources. The
    records of failures are in a file beside the folder, if there are any.
    """
    if asked.output == "-":
        raise WrongUsage("--output: many images need a folder, not standard output")
    archive = asked.archive
    if archive is not None and asked.retry:
        raise WrongUsage("--retry-failed: a ZIP cannot be mended; filter into a folder")
    path = Path(asked.output) if archive is None else zip_file.collected(archive)
    folder = ResultsFolder(path, asked.force)
    folder.check(roots)
    file = failures.beside(archive or folder.path)
    depends_on = {name: each for name, each in options.items() if name != "retry"}
    origin = Origin(file, depends_on, "--retry-failed" if asked.retry else "--output")
    if asked.retry:
        if not file.exists():
            _check_ended(path, file)
            print(f"{file} does not exist: no image has failed", file=sys.stderr)
            return ExitCode.OK
        origin.check_options()
    left = _tasks(asked, sources, file)
    own = {**options, "max_pixels": asked.settings.max_pixels, "output": asked.output}
    goes_on = _goes_on(asked, sources, origin, partial_of(file, own))
    if goes_on:
        folder = ResultsFolder(path, replaces=True)
        left = (each for each in left if not folder.has(each.source, each.target))
    results = ResultsFile(
        file,
        (each.source.name for each in left),
        own,
        replaces=True,
        convert=failures.write_failures,
        check=partial(_check, asked, sources, folder, roots),
        anew=goes_on,
    )
    code = _completed(asked, sources, results, folder, left, origin, goes_on)
    if not results.failed:
        file.unlink()
    if archive is not None:
        zip_file.discard(archive)
    return code


def _goes_on(asked: Asked, sources: Sources, origin: Origin, journal: Path) -> bool:
    """Return whether the images without a result are filtered, beside the results of earlier runs.

    That is so if the earlier command ended, or if its images are not the first ones any more: the
    folder has grown. WrongUsage if other options made the results.
    """
    if asked.retry:
        return False
    if journal.exists():
        return not in_order(journal, sources)
    if asked.force or asked.archive is not None:
        return False
    if not origin.is_known or not Path(asked.output).is_dir():
        return False
    origin.check_options()
    return True


def _check_ended(folder: Path, file: Path) -> None:
    """Raise WrongUsage if no command has filtered into the folder, or one that did not end."""
    if not folder.is_dir():
        raise WrongUsage(
            f"--retry-failed: {folder} has no results; name the folder of earlier ones"
        )
    if failures.unfinished(file):
        raise WrongUsage(
            f"--retry-failed: the command that filters into {folder} has not ended; start it again "
            "without --retry-failed first"
        )


def _completed(
    asked: Asked,
    sources: Sources,
    results: ResultsFile,
    folder: ResultsFolder,
    left: Iterator[Task],
    origin: Origin,
    goes_on: bool,
) -> int:
    """Write the results that are missing, then everything that is made of them."""
    try:
        code = _continued(asked, sources, results, folder, left, goes_on)
        if asked.archive is not None:
            zip_file.pack(asked.archive, replaces=asked.force)
        else:
            origin.keep({})
        results.finish()
    except WrongUsage:
        results.abandon()
        raise
    except BaseException:  # re-raised
        results.close()
        raise
    return code


def _check(asked: Asked, sources: Sources, folder: ResultsFolder, roots: Sequence[str]) -> None:
    """Raise WrongUsage if a result would replace a file.

    A command that is stopped meanwhile must be checked again, because one that continues may
    replace what the earlier one may have written.
    """
    if asked.archive is not None:
        zip_file.check(asked.archive, roots, replaces=asked.force)
    elif asked.retry:
        failures.check_ended(failures.beside(folder.path))
    else:
        folder.check_targets(_wanted(asked, sources), sources)


def _continued(
    asked: Asked,
    sources: Sources,
    results: ResultsFile,
    folder: ResultsFolder,
    left: Iterator[Task],
    goes_on: bool,
) -> int:
    first = results.done
    if asked.retry:
        total = sum(1 for _ in failures.failed_names(failures.beside(folder.path)))
    else:
        total = source_flags.counted(sources)
        if goes_on:
            first = sum(folder.has(each, target) for each, target in _wanted(asked, sources))

    def tasks() -> Iterator[Task]:
        for number, each in enumerate(left):
            yield replace(each, replaces=results.resumed and number < MOST_AHEAD)

    work = Filtering(asked.version, InFolder(folder))

    with Progress(total, first, results.failed) as progress:
        if first < total:
            sink = ResultsSink(results, progress)
            Run(asked.settings, work, asked.servers, total).answer(tasks(), sink, GOES_ON)
    failed = results.failures()
    print(progress.summary(), *filter(None, [failed]), sep="\n", file=sys.stderr)
    return ExitCode.FAILED if results.failed else ExitCode.OK


def _tasks(asked: Asked, sources: Sources, file: Path) -> Iterator[Task]:
    """Return the images to filter; with `retry` those that have failed, by `file`."""
    wanted = enumerate(_wanted(asked, sources))
    tasks = (Task(number, source, target) for number, (source, target) in wanted)
    return failures.only_failed(tasks, _name, file) if asked.retry else tasks


def _name(task: Task) -> str:
    return task.source.name


def _wanted(asked: Asked, sources: Sources) -> Iterator[tuple[Source, str]]:
    """Yield every image with the file for its result, relative to the folder of results."""
    format_ = asked.version.output.format
    fixed = format_.format if isinstance(format_, FixedFormat) else None
    places = Places(fixed, one_folder=sources.is_one_folder)
    return ((source, places.target(source.place)) for source in sources)
