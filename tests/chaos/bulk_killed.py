"""Kill a bulk command with kill -9 again and again: its file must equal an undisturbed one.

`python -m tests.chaos.bulk_killed [--count 1000] [--kills 5] [--flags "--gpus 0"]`. `darkroom
classify` labels a folder of photos into one file undisturbed. Into another file the same command is
killed at equal shares of all records, and then runs to its end. The last line is a JSON object; the
exit code is 1 if the bytes of the files differ, or a run that was killed had added no record.
"""

import argparse
import json
import shlex
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

from tests.bench.bulk import DARKROOM
from tests.pictures import jpeg


def written(out: Path) -> int:
    """Return the number of records in the partial file of a command."""
    return sum(each.read_bytes().count(b"\n") for each in out.parent.glob(f"{out.name}.*.partial"))


def killed(command: list[str], out: Path, records: int) -> int:
    """Run a command until `records` are written and kill it; return the records that are there."""
    with subprocess.Popen([*command, str(out)]) as process:
        while process.poll() is None and written(out) < records:
            time.sleep(0.02)
        process.kill()
    return written(out)


def main() -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--flags", default="--gpus 0", help="further flags of the command")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        photos, whole, cut = (Path(name, each) for each in ("photos", "whole", "cut"))
        photos.mkdir()
        for number in range(given.count):
            (photos / f"{number}.jpg").write_bytes(jpeg(number))
        command = [*DARKROOM, "classify", str(photos), "--weights", "bundled"]
        command += [*shlex.split(given.flags), "--out"]
        subprocess.run([*command, str(whole)], check=True)
        shares = [each * given.count // (given.kills + 1) for each in range(1, given.kills + 1)]
        kills = [killed(command, cut, each) for each in shares]
        subprocess.run([*command, str(cut)], check=True)
        equal = whole.read_bytes() == cut.read_bytes()
    print(json.dumps({"images": given.count, "records_at_kills": kills, "equal": equal}))
    return int(not equal or any(one >= other for one, other in pairwise([0, *kills])))


if __name__ == "__main__":
    sys.exit(main())
