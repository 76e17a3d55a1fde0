"""The table of `darkroom bench`."""

from app.cli.commands.bench import _row


def test_a_server_s_names_of_errors_cannot_steer_the_terminal() -> None:
    step = {
        "milliseconds": dict.fromkeys(("p50", "p90", "p99", "max")),
        "loop": "closed",
        "connections": 1,
        "stable": True,
        "client_limited": False,
        "errors": {"\x1b[2J\x9b\n": 3},
        "client_cores": 0.1,
        "images_per_second": 0.0,
    }
    row = _row(step, colours=False)
    assert row.isprintable()
    assert "\\x1b[2J\\x9b\\x0a: 3" in row
