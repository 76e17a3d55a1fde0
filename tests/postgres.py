"""A PostgreSQL server of Debian on a free port of 127.0.0.1, in a temporary folder."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from tests.ports import free_port
from tests.server import until

USER = "postgres"


def programs() -> Path | None:
    """Return the folder of the newest server that is installed, or None."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return found[-1].parent if found else None


@dataclass
class Postgres:
    """A running server; each `database` is new."""

    port: int
    programs: Path
    _numbers: Iterator[int] = field(default_factory=count)

    def database(self) -> str:
        """Return the URL of an empty database."""
        name = f"darkroom{next(self._numbers)}"
        where = ["-h", "127.0.0.1", "-p", str(self.port), "-U", USER]
        subprocess.run([self.programs / "createdb", *where, name], check=True)
        return f"postgresql+psycopg://{USER}@127.0.0.1:{self.port}/{name}"


@contextmanager
def running() -> Iterator[Postgres]:
    """Start a server and end it; it never runs as root, which it refuses."""
    found = programs()
    assert found is not None
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="darkroom-postgres-") as folder:
        os.chmod(folder, 0o777)  # the server's user makes its folder in it
        data = f"{folder}/data"
        log = Path(folder) / "log"
        user = _as_user()
        make = ["initdb", "-D", data, "-U", USER, "--auth=trust", "--no-sync", "-E", "UTF8"]
        subprocess.run([*user, found / make[0], *make[1:]], check=True, stdout=subprocess.DEVNULL)
        flags = ["-D", data, "-p", str(port), "-c", "listen_addresses=127.0.0.1"]
        flags += ["-c", "unix_socket_directories=", "-c", "fsync=off"]
        with log.open("wb") as out:
            process = subprocess.Popen([*user, found / "postgres", *flags], stdout=out, stderr=out)
        try:
            ready = [str(found / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(port)]
            until(lambda: subprocess.run(ready).returncode == 0 or process.poll() is not None)
            assert process.poll() is None, log.read_text()
            yield Postgres(port, found)
        finally:
            process.terminate()
            process.wait(60)
            shutil.rmtree(data, ignore_errors=True)


def _as_user() -> list[str]:
    """Return a command before the server's that takes root's rights away, if this is root."""
    if os.getuid():
        return []
    return ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
