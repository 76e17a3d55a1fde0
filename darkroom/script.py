"""The command `darkroom`, in a checkout and in a wheel that shares its environment with others.

The packages of Darkroom are called `app`, `models` and `workers`. Other distributions use these
names as well, so the wheel puts the packages, and a copy of the Python client, below `darkroom`,
where no other program finds them. The packages are imported from there before anything else is, in
this process and in all that it starts; the client is found there as well.
"""

import functools
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

PACKAGES = ("app", "models", "workers")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command of the command line and return its exit code."""
    find_packages()
    from app.cli.script import main as run

    return run(arguments)


@functools.cache
def find_packages() -> None:
    """Import the packages of Darkroom, whatever else has their names; do it once."""
    sys.path.insert(0, _folder())
    for name in PACKAGES:
        __import__(name)
    sys.path.append(sys.path.pop(0))  # nothing else in the folder may hide a module of others
    sys.meta_path.insert(0, _ClientFinder())


class _ClientFinder:
    """Finder of the wheel's copy of the Python client, whose import takes time."""

    def find_spec(
        self, name: str, _path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the copy in the folder with the packages, None in a checkout."""
        return PathFinder.find_spec(name, [_folder()]) if name == "darkroom_client" else None


def _folder() -> str:
    """Return the folder with the packages: this one in a wheel, the one above in a checkout."""
    here = os.path.dirname(os.path.abspath(__file__))
    return here if os.path.isdir(os.path.join(here, "app")) else os.path.dirname(here)
