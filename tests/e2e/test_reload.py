"""SIGHUP and SIGUSR2 at a server of one process."""

import signal
from pathlib import Path

from tests.pictures import jpeg
from tests.server import post, serving, until


def test_sighup_changes_limits_in_place_and_a_wrong_file_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "darkroom.env"
    file.write_text("DARKROOM_MAX_BODY_BYTES=1000000\n")
    flags = (
        "--weights",
        "random",
        "--precision",
        "fp32",
        "--log-level",
        "error",
        "--settings-file",
        str(file),
    )
    with serving(*flags) as server:
        url = f"http://127.0.0.1:{server.port}/filter?name=invert"

        def status() -> int:
            kind = {"Content-Type": "image/jpeg"}
            return post(url, content=jpeg(), headers=kind).status_code

        assert status() == 200
        file.write_text("DARKROOM_MAX_BODY_BYTES=10\n")
        server.process.send_signal(signal.SIGHUP)
        until(lambda: status() == 413)
        file.write_text("DARKROOM_MAX_BODY_BYTES=nonsense\n")
        server.process.send_signal(signal.SIGHUP)
        server.process.send_signal(signal.SIGUSR2)
        assert {status() for _ in range(20)} == {413}
        file.write_text("DARKROOM_MAX_BODY_BYTES=1000000\n")
        server.process.send_signal(signal.SIGHUP)
        until(lambda: status() == 200)
