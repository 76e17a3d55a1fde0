"""`python -m app.cli`: the same as the script `darkroom`."""

import sys

from app.cli.script import main

sys.exit(main())
