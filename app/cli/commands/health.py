"""`darkroom health`: tell whether a server is ready, and why not.

It imports the standard library only, because scripts and containers run it every few seconds.
"""

import argparse
import http.client
import json
import os
import ssl
import sys
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from app.bulk.errors import WrongUsage
from app.cli.standard_output import show
from app.system.terminal import Style, has_colours, printable, styled
from models.exit_codes import ExitCode

MOST = 1 << 20
"""Bytes of an answer that are read."""

EXAMPLES = (
    "darkroom health",
    "darkroom health http://localhost:8000 --json",
    "until darkroom health --timeout 2; do sleep 1; done",
)


def declare(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument(
        "url",
        nargs="?",
        metavar="URL",
        help="the server (default: by DARKROOM_PORT and DARKROOM_TLS_CERTIFICATE, else "
        "http://localhost:8000)",
    )
    parser.add_argument(
        "--timeout",
        type=float,
        default=5.0,
        metavar="SECONDS",
        help="seconds to wait for an answer (default: 5)",
    )
    parser.add_argument(
        "--json", dest="as_json", action="store_true", help="print one line of JSON"
    )
    parser.add_argument(
        "--insecure",
        action="store_true",
        help="accept any certificate (default: only for the server of this machine's settings)",
    )


def run(_settings: None, url: str | None, timeout: float, as_json: bool, insecure: bool) -> int:
    """Print the state; the exit code is OK if the server is ready, else FAILED."""
    target, own = (_own_server(), True) if url is None else (url, False)
    if not 0 < timeout <= 600:
        raise WrongUsage(f"--timeout: more than 0 and at most 600 (given: {timeout:g})")
    found = ask(target, timeout, verified=not (insecure or own))
    show(json.dumps(found) + "\n" if as_json else table(found, has_colours(sys.stdout)))
    return ExitCode.OK if found["ready"] else ExitCode.FAILED


def ask(url: str, timeout: float, verified: bool = True) -> dict[str, Any]:
    """Return `url`, `ready`, `state`, and the answer of `/readyz?verbose` or why there is none.

    The request never goes to a proxy. WrongUsage if `url` is none.
    """
    found: dict[str, Any] = {"url": url, "ready": False, "state": "unreachable"}
    host, port, path, encrypted = _parts(url)
    opened = http.client.HTTPConnection(host, port, timeout=timeout)
    if encrypted:
        context = ssl.create_default_context() if verified else ssl._create_unverified_context()  # noqa: S323
        opened = http.client.HTTPSConnection(host, port, timeout=timeout, context=context)
    try:
        opened.request("GET", f"{path}/readyz?verbose", headers={"Connection": "close"})
        response = opened.getresponse()
        body = response.read(MOST)
    except (OSError, http.client.HTTPException) as error:
        return {**found, "reasons": [_no_answer(error, timeout)]}
    finally:
        opened.close()
    try:
        told = json.loads(body)
    except (ValueError, RecursionError):
        told = None
    if not isinstance(told, dict):
        return {**found, "reasons": ["what answers there is no Darkroom server"]}
    if response.status == http.client.NOT_FOUND:
        return {**found, "reasons": [f"there is no {path}/readyz; give the URL without a path"]}
    ready = response.status == http.client.OK
    state = str(told.get("status", "not ready"))
    return {**found, "ready": ready, "state": state, "reasons": reasons(told), "details": told}


def reasons(told: dict[str, Any]) -> list[str]:
    """Return why a server is not ready, or is ready but degraded, from its own answer."""
    worker, canary, weights = (_part(told, name) for name in ("worker", "canary", "weights"))
    found = []
    if told.get("stopping"):
        found.append("the server is stopping")
    if worker.get("alive") is False:
        found.append("no worker is running")
    if canary.get("problem"):
        found.append(f"canary: {canary['problem']}")
    if worker.get("degraded"):
        found.append(f"degraded: {worker['degraded']}")
    if weights.get("problem"):
        found.append(f"weights: {weights['problem']}")
    return found


def table(found: dict[str, Any], colours: bool) -> str:
    """Return the lines for people: the state and the reasons.

    The answer of the server is escaped, so that it cannot steer the terminal or write a line of its
    own.
    """
    good = found["ready"] and found["state"] == "ok"
    style = Style.GREEN if good else Style.YELLOW if found["ready"] else Style.RED
    word = {"ok": "ready", "degraded": "ready, but degraded"}.get(found["state"], found["state"])
    lines = [f"{printable(found['url'])} is {styled(printable(word), style, on=colours)}"]
    lines += [f"  {printable(reason)}" for reason in found["reasons"]]
    return "\n".join(lines) + "\n"


def _parts(url: str) -> tuple[str, int, str, bool]:
    """Return host, port and path of a URL, and whether it is HTTPS; WrongUsage if it is none."""
    with suppress(ValueError):
        parts = urlsplit(url)
        if parts.hostname and parts.scheme in ("http", "https"):
            encrypted = parts.scheme == "https"
            port = parts.port or (http.client.HTTPS_PORT if encrypted else http.client.HTTP_PORT)
            return parts.hostname, port, parts.path.rstrip("/"), encrypted
    raise WrongUsage(f"{url} is no URL; write http://host:port or https://host:port")


def _own_server() -> str:
    """Return the URL of the server that the settings of this environment describe."""
    scheme = "https" if os.environ.get("DARKROOM_TLS_CERTIFICATE") else "http"
    return f"{scheme}://localhost:{os.environ.get('DARKROOM_PORT') or 8000}"


def _part(told: dict[str, Any], name: str) -> dict[str, Any]:
    part = told.get(name)
    return part if isinstance(part, dict) else {}


def _no_answer(error: Exception, timeout: float) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {timeout:g} s; --timeout allows more"
    reason = str(getattr(error, "strerror", None) or error or type(error).__name__)
    if isinstance(error, ConnectionRefusedError):
        reason += "; nothing listens there: is the server still starting, or on another port?"
    return f"no answer: {reason}"
