"""Where a run puts its records: into a file of results, counted by a progress bar."""

from collections.abc import Mapping

from app.bulk.engines.engine import Finished
from app.bulk.outputs.origin import Origin
from app.bulk.outputs.results_file import ResultsFile
from app.bulk.progress import Progress


class ResultsSink:
    """Sink that appends records to a file of results, and counts them.

    The records replace those of failures in the finished file that `mended` describes, if it is
    given.
    """

    def __init__(
        self, results: ResultsFile, progress: Progress, mended: Origin | None = None
    ) -> None:
        self._results, self._progress, self._mended = results, progress, mended

    def begin(self, identity: Mapping[str, object] | None) -> None:
        """Compare the network with that of earlier records."""
        if identity is not None:
            if self._mended is not None:
                self._mended.check_network(identity)
            self._results.begin(identity)

    def keep(self, finished: list[Finished]) -> None:
        """Append records."""
        failed = sum(each.failed for each in finished)
        self._results.add(b"".join(each.line for each in finished), failed, len(finished))
        self._progress.add(failed, len(finished))
