"""`python -m app.cli`: what the script `darkroom` runs."""

import sys

from app.cli.script import main

sys.exit(main())
