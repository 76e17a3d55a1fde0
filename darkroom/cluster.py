"""Darkroom on Ray Serve: `serve run` finds `build` here, in a checkout and in a wheel.

The classes are derived here because Ray's processes import a class from the module that defines it.
"""

from typing import Any

from darkroom.script import find_packages

find_packages()

from app.cluster import (  # noqa: E402 (its packages must be found before)
    FrontEnd,
    WorkerReplica,
    application,
)


class FrontEnds(FrontEnd):
    """The deployment that speaks HTTP."""


class Workers(WorkerReplica):
    """The deployment that computes."""


def build(arguments: dict[str, Any]) -> Any:
    """Return the Ray Serve application; `arguments` are settings of Darkroom by their names."""
    return application(FrontEnds, Workers, arguments)
