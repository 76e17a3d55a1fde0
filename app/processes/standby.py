"""Run a spare worker, which is warm and listed under this name until it has an address.

The supervisor starts it as `python -m app.processes.standby NAME`.
"""

import sys

from app.processes.member import run

if __name__ == "__main__":
    sys.exit(run())
