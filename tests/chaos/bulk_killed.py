"""Kill a bulk command with kill -9, twice, and continue it: its file must equal an undisturbed one.

Method: a list repeats the photos of a folder until it has `--count` lines. `darkroom classify`
labels it into one file undisturbed. Into another file the same command is killed when 0.3 and 0.6
of all records are written, and then runs to its end. The last line is a JSON object; the exit code
is 1 if the files differ. Run: python -m tests.chaos.bulk_killed --photos FOLDER [--count 24000]
[--flags "--gpus auto"]
"""

import argparse
import json
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.bench.bulk import DARKROOM, listed

SHARES = (0.3, 0.6)
"""Shares of all records at which the command is killed."""


def written(out: Path) -> int:
    """Return the number of records in the partial file of a command."""
    return sum(each.read_bytes().count(b"\n") for each in out.parent.glob(f"{out.name}.*.partial"))


def killed(words: list[str], out: Path, records: int) -> dict[str, int]:
    """Run a command and kill it at a number of records; return its exit code and its records."""
    with subprocess.Popen(words) as process:
        while process.poll() is None and written(out) < records:
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
        return {"code": process.wait(), "records": written(out)}


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--photos", type=Path, required=True)
    parser.add_argument("--count", type=int, default=24_000)
    parser.add_argument("--flags", default="--gpus auto", help="further flags of the command")
    given = parser.parse_args()
    with TemporaryDirectory() as name:
        folder = Path(name)
        sources = listed(given.photos, given.count, folder / "list")
        words = [*DARKROOM, "classify", "--from", str(sources), "--weights", "bundled"]
        words += [*shlex.split(given.flags), "--out"]
        whole, cut = folder / "whole.jsonl", folder / "cut.jsonl"
        subprocess.run([*words, str(whole)], check=True)
        kills = [killed([*words, str(cut)], cut, int(each * given.count)) for each in SHARES]
        subprocess.run([*words, str(cut)], check=True)
        one, other = whole.read_bytes().splitlines(), cut.read_bytes().splitlines()
    equal = one == other
    print(json.dumps({"images": given.count, "kills": kills, "equal": equal}))
    return int(not equal)


if __name__ == "__main__":
    sys.exit(main())
