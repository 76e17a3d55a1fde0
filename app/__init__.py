"""The HTTP front end, the URL fetch and the command line; start reading in `main` and `cli`."""

import sys

if sys.argv[0] == "-m" and not sys.flags.safe_path:
    # `python -m app.…` puts the current folder first on the import path, and any `numpy.py` lying
    # there would be executed. Python names itself "-m" while it looks for the module, and imports
    # this package before all that the module imports. The other packages of a checkout are found
    # now, beside this one, so that it works without being installed, and never with half of an
    # installed one.
    del sys.path[0]
    sys.path.insert(0, __path__[0].rpartition("/")[0])
    for _package in ("models", "workers"):
        __import__(_package)
    del sys.path[0]
