"""The flow of a stream: which requests may begin, what they report, and the first error.

Each request reports its results, then its error if it has one, and DONE at last.
"""

from darkroom_client.options import Progress
from darkroom_client.records import ImageResult
from darkroom_client.requests import ImageCall

DONE = None
Report = ImageResult | BaseException | None


class Flow:
    """Counts of one call. After an error of a whole request no other request begins.

    `total` is the number of its images, None if it is not known.
    """

    def __init__(self, call: ImageCall, connections: int, total: int | None) -> None:
        self._call = call
        self._connections = connections
        self._started = 0
        self._running = 0
        self._error: BaseException | None = None
        self._total = total
        self._done = self._failed = 0

    def may_start(self) -> bool:
        """Return whether one more request may begin."""
        return self._error is None and self._running < self._connections

    def start(self) -> ImageCall:
        """Count one more request; return the call under the request's own id."""
        self._started += 1
        self._running += 1
        return self._call.numbered(self._started)

    def take(self, report: Report) -> ImageResult | None:
        """Count a report; return the result that it is, or None for any other."""
        if isinstance(report, ImageResult):
            self._tell(report)
            return report
        if report is DONE:
            self._running -= 1
        elif self._error is None:
            self._error = report
        return None

    def ended(self) -> bool:
        """Return whether no request is under way; raises the first error if none is."""
        if self._running:
            return False
        if self._error is not None:
            raise self._error
        return True

    def _tell(self, result: ImageResult) -> None:
        self._done += 1
        self._failed += not result.ok
        if self._call.progress is not None:
            self._call.progress(Progress(self._done, self._failed, self._total))
