"""The HTTP front end, the URL fetch and the command line; start reading in `main` and `cli`."""

import sys

if sys.argv[0] == "-m" and not sys.flags.safe_path:
    # `python -m app.…` puts the current folder first on the import path, and any `numpy.py` lying
    # there would be executed. Python names itself "-m" while it looks for the module, and no
    # module of ours but this one has been imported yet. A checkout stays importable: at the end.
    del sys.path[0]
    if (_checkout := __path__[0].rpartition("/")[0]) not in sys.path:
        sys.path.append(_checkout)
