"""Darkroom on Ray Serve: `serve run` finds `build` here, in a checkout and in a wheel.

The classes are derived here because Ray's processes import a class from the module that defines it.
"""

from typing import Any

from click import ClickException

from darkroom.script import find_packages

find_packages()

from models.plugins import PluginRefused  # noqa: E402 (its packages must be found before)

try:
    from app.cluster import FrontEnd, WorkerReplica, application
except PluginRefused as error:  # Ray's command shows the message without a traceback
    raise ClickException(str(error)) from None


class FrontEnds(FrontEnd):
    """The deployment that speaks HTTP."""


class Workers(WorkerReplica):
    """The deployment that computes."""


def build(arguments: dict[str, Any]) -> Any:
    """Return the Ray Serve application; `arguments` are settings of Darkroom by their names."""
    return application(FrontEnds, Workers, arguments)
