"""Filters of other packages, which name their classes as entry points of a group.

These packages are code that the operator has installed: they run with all rights of the server.
"""

import functools
from importlib.metadata import entry_points
from typing import Any


class PluginRefused(Exception):
    """A package of filters cannot be used; the text names the package, the fault and the remedy."""

    def __init__(self, package: str, fault: object) -> None:
        super().__init__(f"{package}: {fault}; correct the package, or uninstall it")


@functools.cache
def plugins() -> tuple[tuple[str, str, Any], ...]:
    """Return package and version, module, and class of each entry point, sorted by its name.

    The class is not checked yet. Raises PluginRefused for a class that cannot be imported.
    """
    found = []
    for each in sorted(entry_points(group="darkroom.filters")):
        assert each.dist is not None, "only an entry point that was made by hand has none"
        package = f"{each.dist.name} {each.dist.version}"
        try:
            found.append((package, each.module, each.load()))
        except Exception as error:  # the module may raise anything
            raise PluginRefused(package, f"{each.value} cannot be imported: {error!r}") from error
    return tuple(found)
