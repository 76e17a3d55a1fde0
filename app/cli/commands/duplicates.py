"""`darkroom duplicates`: print groups of images that look alike, by their hashes."""

import argparse
import sys
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.bulk.errors import WrongUsage
from app.bulk.report import human_line
from app.bulk.run import Run, tasks_of
from app.bulk.sources import allowed
from app.bulk.work import Finished, Hashing
from app.cli.flags import LOCAL, add_settings
from app.cli.image_flags import JSON, add_sources, counted, sources_of
from app.cli.standard_output import show
from app.system.terminal import is_terminal, printable
from models.settings import Settings

EXAMPLES = ("darkroom duplicates photos/", "darkroom duplicates photos/ --distance 2 --json")

BITS = 64
"""Bits of a hash."""


def declare(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add_sources(parser, retry=False)
    text = f"most bits, of {BITS}, in which the hashes of two images that look alike differ"
    parser.add_argument("--distance", type=int, default=6, metavar="N", help=f"{text} (default: 6)")
    parser.add_argument("--json", dest="as_json", action="store_true", help=JSON)
    add_settings(parser, LOCAL)


def run(settings: Settings, distance: int, as_json: bool, **options: Any) -> int:
    """Print the groups; the exit code is FAILED when any image has no hash."""
    if not 0 <= distance <= BITS:
        raise WrongUsage(f"--distance: a number of bits from 0 to {BITS} is needed")
    servers, settings = options.pop("servers"), allowed(settings, options["files"])
    sources = sources_of(options)
    names, hashes = list[str](), list[int]()

    def keep(finished: list[Finished]) -> None:
        for line, failed in finished:
            if failed:
                print(human_line(line), end="", file=sys.stderr)
                continue
            record = msgspec.json.decode(line)
            names.append(record["source"])
            hashes.append(int(record["info"]["phash"], 16))

    code = Run(settings, Hashing(), servers, counted(sources)).answer(tasks_of(iter(sources)), keep)
    for_people = is_terminal(sys.stdout) and not as_json
    for group in alike(np.array(hashes, np.uint64), distance):
        images = [
            {
                "source": names[each],
                "phash": f"{hashes[each]:016x}",
                "distance": (hashes[each] ^ hashes[group[0]]).bit_count(),
            }
            for each in group
        ]
        if for_people:
            lines = [
                f"{each['distance']:>2}  {printable(str(each['source']))}\n" for each in images
            ]
            show("".join([*lines, "\n"]))
        else:
            show(msgspec.json.encode({"images": images}) + b"\n")
    return code


def alike(hashes: NDArray[np.uint64], distance: int) -> list[list[int]]:
    """Return groups of two and more hashes, each within `distance` bits of another of its group.

    Each hash is compared once with all hashes that have no group yet: the time grows with
    the square of their number, and the memory with the number, however many are alike.
    """
    left, found = np.arange(len(hashes)), []
    while len(left):
        group, left = [int(left[0])], left[1:]
        rest = hashes[left]
        for each in group:  # which grows meanwhile
            near = np.bitwise_count(rest ^ hashes[each]) <= distance
            if near.any():
                group += left[near].tolist()
                left, rest = left[~near], rest[~near]
        if len(group) > 1:
            found.append(sorted(group))
    return found
