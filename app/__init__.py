"""The HTTP front end, the fetching of URLs, and the command line.

Start reading at `main.py`, or at `cli/parser.py` for the command line.
May import `models`, `workers.operations` and `workers.filters`.
"""

import sys

if sys.argv[0] == "-m" and not sys.flags.safe_path:
    # `python -m app.…` puts the current folder first on the import path, so that a `numpy.py` in it
    # would be executed. While Python looks for the module, argv[0] is "-m", and this package is
    # imported before any import of the module runs: this is the moment to remove the folder. The
    # other packages of the checkout are imported now from beside this one, so that a checkout works
    # without being installed and never mixes with an installed version.
    del sys.path[0]
    sys.path.insert(0, __path__[0].rpartition("/")[0])
    for _package in ("darkroom", "models", "workers"):
        __import__(_package)
    del sys.path[0]
