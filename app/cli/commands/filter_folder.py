"""`darkroom filter` for the images of folders and lists: mirrored, and continued after a stop."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from app.bulk.errors import WrongUsage
from app.bulk.outputs import records, zip_file
from app.bulk.outputs.folder import Places, ResultsFolder
from app.bulk.outputs.journal import Journal, Origin, partial_of
from app.bulk.outputs.records import Records
from app.bulk.run import GOES_ON, JournalSink, Progress, Run
from app.bulk.sources.expansion import Sources
from app.bulk.sources.source import Source
from app.bulk.work import Filtering, Task
from app.cli.image_flags import counted
from app.intake.wanted import Version
from models.codec import ImageFormat
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

    Missing are the results of images without a record in an interrupted run, and those that are not
    in the folder of a run that has ended, which has grown.
    """
    if asked.output == "-":
        raise WrongUsage("--output: many images need a folder, not standard output")
    archive = asked.archive
    if archive is not None and asked.retry:
        raise WrongUsage("--retry-failed: a ZIP cannot be mended; filter into a folder")
    path = Path(asked.output) if archive is None else zip_file.collected(archive)
    ResultsFolder(path, asked.force).check(roots)
    file = records.beside(archive or path)
    depends_on = {name: each for name, each in options.items() if name != "retry"}
    origin = Origin(file, depends_on, "--retry-failed" if asked.retry else "--output")
    if asked.retry and not file.exists():
        _check_ended(path, file)
        print(f"{file} does not exist: no image has failed", file=sys.stderr)
        return ExitCode.OK
    own = {**options, "max_pixels": asked.settings.max_pixels, "output": asked.output}
    resumed = partial_of(file, own).exists()
    grows = not (resumed or asked.retry or asked.force or archive is not None)
    grows = grows and origin.is_known and path.is_dir()
    if asked.retry or grows:
        origin.check_options()
    # Results that a run may have written after its last record are there, and are written again.
    folder = ResultsFolder(path, asked.force or resumed or grows)
    check = partial(_check, asked, sources, folder, roots)
    journal = Journal(file, own, replaces=True, check=check)
    failed = Records([file] if asked.retry else [])

    def is_left(source: Source, target: str) -> bool:
        if asked.retry:
            return failed.failed(source.name) and source.name not in journal.earlier
        if grows or (source.name in journal.earlier and not journal.earlier.failed(source.name)):
            return not folder.has(source, target)
        return source.name not in journal.earlier

    try:
        code = _answered(asked, sources, journal, folder, file, is_left, goes_on=resumed or grows)
        if archive is not None:
            zip_file.pack(archive, replaces=asked.force)
        else:
            origin.keep({})
        journal.finish(records.write_failures)
    except WrongUsage:
        journal.abandon()
        raise
    except BaseException:  # re-raised
        journal.close()
        raise
    if not journal.failed:
        file.unlink()
    if archive is not None:
        zip_file.discard(archive)
    return code


def _check_ended(folder: Path, file: Path) -> None:
    """Raise WrongUsage if no command has filtered into the folder, or one that did not end."""
    if not folder.is_dir():
        raise WrongUsage(
            f"--retry-failed: {folder} has no results; name the folder of earlier ones"
        )
    if records.unfinished(file):
        raise WrongUsage(
            f"--retry-failed: the command that filters into {folder} has not ended; start it again "
            "without --retry-failed first"
        )


def _check(asked: Asked, sources: Sources, folder: ResultsFolder, roots: Sequence[str]) -> None:
    """Raise WrongUsage if a result would replace a file.

    A command that is stopped meanwhile must be checked again, because one that continues may
    replace what the earlier one may have written.
    """
    if asked.archive is not None:
        zip_file.check(asked.archive, roots, replaces=asked.force)
    elif asked.retry:
        records.check_ended(records.beside(folder.path))
    else:
        folder.check_targets(_wanted(asked, sources), sources)


def _answered(
    asked: Asked,
    sources: Sources,
    journal: Journal,
    folder: ResultsFolder,
    file: Path,
    is_left: Callable[[Source, str], bool],
    *,
    goes_on: bool,
) -> int:
    """Filter the images that are left; return the exit code."""
    first = journal.done
    if asked.retry:
        total = records.check_present(file, (each.name for each in sources))
    else:
        total = counted(sources)
        if goes_on:
            first = sum(not is_left(*each) for each in _wanted(asked, sources))
    tasks = (
        Task(number, source, target)
        for number, (source, target) in enumerate(_wanted(asked, sources))
        if is_left(source, target)
    )
    work = Filtering(asked.version, _InFolder(folder))
    with Progress(total, first, journal.failed) as progress:
        if first < total:
            sink = JournalSink(journal, progress)
            Run(asked.settings, work, asked.servers, total).answer(tasks, sink, GOES_ON)
    told = records.shown(journal.partial, file, journal.failed)
    print(progress.summary(), *filter(None, [told]), sep="\n", file=sys.stderr)
    return ExitCode.FAILED if journal.failed else ExitCode.OK


@dataclass(frozen=True, slots=True)
class _InFolder:
    """Destination of many images: the folder of results, which mirrors the folders of sources."""

    folder: ResultsFolder

    def write(self, task: Task, format_: ImageFormat, data: bytes) -> str | None:
        return str(self.folder.write(task.target, format_, data))

    def planned(self, task: Task) -> str | None:
        return str(self.folder.path / task.target)


def _wanted(asked: Asked, sources: Sources) -> Iterator[tuple[Source, str]]:
    """Yield every image with the file for its result, relative to the folder of results."""
    places = Places(asked.version.output.format.format, one_folder=sources.is_one_folder)
    return ((source, places.target(source.place)) for source in sources)
