"""The progress of a long command on a terminal, and its summary at the end."""

import sys
import time
from types import TracebackType

from tqdm import tqdm

from app.system.terminal import is_terminal


class Progress:
    """A bar with rate, failures and time left if standard error is a terminal.

    `total` images are wanted; `earlier` of them are the results of an earlier run.
    """

    def __init__(self, total: int, earlier: int, failed: int) -> None:
        self._total, self._earlier, self._failed = total, earlier, failed
        self._done, self._began = earlier, time.monotonic()

    def __enter__(self) -> "Progress":
        self._bar = tqdm(
            total=self._total,
            initial=self._earlier,
            unit=" images",
            disable=not is_terminal(sys.stderr),
            dynamic_ncols=True,
        )
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _e: BaseException | None, _t: TracebackType | None
    ) -> None:
        self._bar.close()

    def add(self, failed: int, count: int = 1) -> None:
        """Count images, of which `failed` have failed."""
        self._done += count
        if failed:
            self._failed += failed
            self._bar.set_postfix_str(f"{self._failed} failed", refresh=False)
        self._bar.update(count)

    def summary(self) -> str:
        """Return one line: images, failures, those of an earlier run, seconds and rate."""
        seconds, now = time.monotonic() - self._began, self._done - self._earlier
        earlier = f", {self._earlier} of them by an earlier run" if self._earlier else ""
        return (
            f"{self._done} images{earlier}, {self._failed} failed; "
            f"{now} in {seconds:.1f} s, {now / max(seconds, 1e-9):.1f} images/s"
        )
