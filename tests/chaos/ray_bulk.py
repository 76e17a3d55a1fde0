"""A bulk command on a Ray cluster that loses commands, actors and a node: is every result there?

`python -m tests.chaos.ray_bulk --images 600 --kills 6` filters drawn images on a cluster of three
nodes of this machine. At random moments it kills the command with `kill -9` and starts it again,
or an actor; once, in the middle, it kills a node with all its processes. The promises: the folder
of results is that of a command without Ray, byte for byte, every source has one record, and no
image that had a record before a kill is written again. The last line is JSON; exit code 1 where a
promise is broken.
"""

import argparse
import json
import os
import random
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.pictures import jpeg
from tests.ray_nodes import Nodes, nodes
from tests.server import until

KINDS = 20
"""Different images; the sources repeat them."""

ACTOR = b"ray::DarkroomActor"


class Undertaking:
    """One bulk command, started again after each kill, and what was noted on the way."""

    def __init__(self, folder: Path, given: argparse.Namespace) -> None:
        self._folder, self._given = folder, given
        self.sources, self.out, self.alone = (folder / name for name in ("in", "out", "alone"))
        self.sources.mkdir()
        drawn = [jpeg(kind, given.side, given.side) for kind in range(KINDS)]
        for number in range(given.images):
            (self.sources / f"{number:06}.jpg").write_bytes(drawn[number % KINDS])
        self.problems: list[str] = []
        self.kills: dict[str, int] = {"command": 0, "actor": 0, "node": 0}
        self._written: dict[str, int] = {}

    def words(self, out: Path, *flags: str) -> list[str]:
        """Return the command that filters into `out`."""
        filters = ["filter", str(self.sources), "--ops", self._given.ops, "--gpus", "0"]
        return [sys.executable, "-m", "app.cli", *filters, "--out", str(out), *flags]

    @property
    def records(self) -> int:
        """Return the number of records of the command that has not ended."""
        partial = self._folder.glob("out.failed.jsonl.*.partial")
        return sum(each.read_bytes().count(b"\n") for each in partial)

    def run(self, cluster: Nodes, chance: random.Random) -> None:
        """Run the command to its end, with kills on the way."""
        words = self.words(self.out, "--ray", cluster.address)
        left = self._given.kills
        while True:
            with subprocess.Popen(words, stderr=subprocess.PIPE) as command:
                while left and command.poll() is None:
                    at = self.records + chance.randint(8, max(9, self._given.images // 8))
                    self._wait(at, command)
                    if command.poll() is None:
                        left -= 1
                        kind = "node" if left == self._given.kills // 2 else ""
                        if self._kill(
                            kind or chance.choice(["command", "actor"]), command, cluster
                        ):
                            break
                errors = command.communicate()[1].decode()
            if command.returncode != -signal.SIGKILL:
                break
        if command.returncode:
            self.problems.append(f"exit code {command.returncode}: {errors[-500:]}")

    def _wait(self, records: int, command: "subprocess.Popen[bytes]") -> None:
        """Wait until there are this many records or the command has ended."""
        until(lambda: self.records >= records or command.poll() is not None)

    def _kill(self, kind: str, command: "subprocess.Popen[bytes]", cluster: Nodes) -> bool:
        """Kill something; return whether it was the command."""
        self.kills[kind] += 1
        if kind == "node":
            cluster.kill(0)
        elif kind == "actor":
            for process in actors(cluster.process)[:1]:
                os.kill(process, signal.SIGKILL)
        else:
            command.kill()
            command.wait()
            self._note()
        return kind == "command"

    def _note(self) -> None:
        """Note when the results that have a record were written, or compare it."""
        for number in range(self.records):
            name = f"{number:06}.jpg"
            written = (self.out / name).stat().st_mtime_ns
            if self._written.setdefault(name, written) != written:
                self.problems.append(f"{name} was written again")

    def compare(self) -> None:
        """Compare the results with those of a command without Ray."""
        self._note()
        subprocess.run(self.words(self.alone), check=True, stderr=subprocess.DEVNULL)
        names = sorted(path.name for path in self.alone.iterdir())
        if names != sorted(path.name for path in self.out.iterdir()):
            self.problems.append("there are other files than without Ray")
            return
        different = [
            name
            for name in names
            if (self.out / name).read_bytes() != (self.alone / name).read_bytes()
        ]
        self.problems += [f"{name} differs" for name in different]


def actors(cluster: int) -> list[int]:
    """Return the processes that are actors of a bulk command, on nodes of the process `cluster`."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            process = int(file.parent.name)
            if file.read_bytes().startswith(ACTOR) and _parent(_parent(process)) == cluster:
                found.append(process)
        except OSError:
            continue
    return found


def _parent(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=600)
    parser.add_argument("--side", type=int, default=200)
    parser.add_argument("--ops", default="median:size=5")
    parser.add_argument("--kills", type=int, default=6)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as name, nodes(1, 1, 1) as cluster:
        work = Undertaking(Path(name), given)
        work.run(cluster, random.Random(given.seed))
        work.compare()
    result = {
        "program": "ray_bulk",
        "command": f"python -m tests.chaos.ray_bulk {shlex.join(sys.argv[1:])}",
        "images": given.images,
        "kills": work.kills,
        "problems": work.problems[:20],
        "wall_s": round(time.monotonic() - began, 1),
    }
    print(json.dumps(result))
    return 1 if work.problems else 0


if __name__ == "__main__":
    sys.exit(main())
