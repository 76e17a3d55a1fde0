"""wrk (https://github.com/wg/wrk), a native closed-loop load generator, driven by `wrk.lua`."""

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

SCRIPT = Path(__file__).with_name("wrk.lua")


@dataclass(frozen=True, slots=True)
class Report:
    """What a run saw. `errors` counts answers that are not a 200, answers with a failed image,
    broken connections and answers that took longer than ten seconds."""

    connections: int
    threads: int
    seconds: float
    requests: int
    errors: int
    per_second: float
    p50_ms: float
    p99_ms: float


def write_requests(path: Path, requests: Sequence[bytes]) -> None:
    """Write the file that `wrk.lua` reads."""
    with path.open("wb") as file:
        for request in requests:
            file.write(b"%d\n" % len(request))
            file.write(request)


def find(asked: str | None) -> str:
    """Return the path of wrk: the one that is asked for, or the one on the PATH."""
    found = shutil.which(asked or "wrk")
    if found is None:
        raise FileNotFoundError(f"{asked or 'wrk'} is no program: install wrk, or pass --wrk PATH")
    return str(Path(found).resolve())


def version(wrk: str) -> str:
    """Return the first line that wrk prints about itself."""
    told = subprocess.run([wrk, "-v"], capture_output=True, text=True, env=_environment(wrk))
    return (told.stdout or told.stderr).partition(" Copyright")[0].strip()


def run(wrk: str, port: int, requests: Path, connections: int, seconds: float) -> Report:
    """Send the requests in turn over a number of connections."""
    threads, whole = min(4, connections), max(1, round(seconds))
    command = [wrk, f"-t{threads}", f"-c{connections}", f"-d{whole}s", "--timeout", "10s"]
    command += ["-s", str(SCRIPT), f"http://127.0.0.1:{port}", "--", str(requests), str(threads)]
    told = subprocess.run(
        command, capture_output=True, text=True, env=_environment(wrk), timeout=whole + 30
    )
    if told.returncode or not told.stdout.rstrip().endswith("}"):
        raise RuntimeError(f"wrk: {told.returncode}: {told.stdout[-300:]} {told.stderr[-300:]}")
    saw = json.loads(told.stdout.splitlines()[-1])
    errors = ("not_200", "with_failed_images", "socket_errors", "timeouts")
    return Report(
        connections=connections,
        threads=threads,
        seconds=round(saw["us"] / 1e6, 2),
        requests=saw["requests"],
        errors=sum(saw[key] for key in errors),
        per_second=round(saw["requests"] / saw["us"] * 1e6, 1),
        p50_ms=round(saw["p50_us"] / 1e3, 2),
        p99_ms=round(saw["p99_us"] / 1e3, 2),
    )


def _environment(wrk: str) -> dict[str, str]:
    """Return an environment in which the libraries beside the program are found."""
    return {**os.environ, "LD_LIBRARY_PATH": str(Path(wrk).parent)}
