"""What a front end knows of the replicas, by their reports; it asks for them regularly."""

import time
from collections.abc import Callable

from models.domain.backend import Load
from workers.backends.absence import Absence
from workers.cluster.messages import Report

SILENT = 10.0
"""Seconds after which a replica that has not reported counts as lost."""


class Replicas:
    """The last report of each replica; `on_change` is called when replicas come or go.

    `identity` is that of the weights which the front end names in answers; None for the first one.
    """

    def __init__(
        self,
        on_change: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
        identity: str | None = None,
    ) -> None:
        self._on_change = on_change
        self._clock = clock
        self._reports: dict[str, Report] = {}
        self._at: dict[str, float] = {}
        self._absence = Absence(clock)
        self._identity = identity
        self.changed = False
        """Whether a replica has other networks or weights than the front end."""

    @property
    def busy_images(self) -> int:
        """Return the images that keep all replicas busy."""
        return sum([each.busy_images for each in self._reports.values()])

    def reported(self, report: Report) -> None:
        """Take a report, unless a newer one of the replica is known."""
        known = self._reports.get(report.replica)
        if known is not None and known.sequence >= report.sequence:
            return
        if self._identity is None:
            self._identity = report.identity
        self.changed = self.changed or report.identity != self._identity
        self._reports[report.replica] = report
        self._at[report.replica] = self._clock()
        if known is None:
            self._absence.ended(0.0)
            self._on_change()

    def all_reported(self, reports: list[Report], complete: bool) -> None:
        """Take the reports of the replicas that answered; `complete` if none failed to.

        Then others exist no more. Otherwise those that are silent are remembered for a while.
        """
        for each in reports:
            self.reported(each)
        there = {each.replica for each in reports}
        if not complete:
            oldest = self._clock() - SILENT
            there |= {name for name, at in self._at.items() if at > oldest}
        self.keep(there)

    def keep(self, names: set[str]) -> None:
        """Forget all replicas but these."""
        gone = self._reports.keys() - names
        for name in gone:
            del self._reports[name], self._at[name]
        if gone:
            self._on_change()

    def absence(self) -> float:
        """Return the seconds until a replica is expected; 0 while there is one."""
        return self._absence.back_in(bool(self._reports))

    def load(self, waiting: int, pixels: int, closing: bool) -> Load:
        """Return the load of all replicas together, with jobs that are not at one yet.

        Baseline JPEGs are always taken encoded: a file is a tenth of its pixels on the network.
        """
        reports = self._reports.values()
        loads = [each.load for each in reports]
        alive = bool(loads) and not closing
        return Load(
            device=", ".join(sorted({each.device for each in reports})),
            queued_jobs=sum([each.queued_jobs for each in loads]) + waiting,
            queued_pixels=sum([each.queued_pixels for each in loads]) + pixels,
            running_jobs=sum([each.running_jobs for each in loads]),
            service_rate=self._absence.rate(sum([each.service_rate for each in loads]), alive),
            alive=alive,
            takes_jpegs=True,
            decoding=min([each.decoding for each in loads], default=0.0),
            back_in=None if closing else self.absence(),
            progress=sum([each.progress for each in loads]),
        )
