"""Health check of Docker: exit with 0 if the server in this container answers that it is ready.

It uses only the standard library, because it starts every few seconds. It prints the body of the
answer, so that `docker inspect` shows why a container is unhealthy.
"""

import http.client
import os
import ssl
import sys

TIMEOUT = 4.0
"""Seconds; less than the timeout of HEALTHCHECK, so that a server that hangs is reported in
words.
"""

SHOWN = 2000
"""Characters of the answer that are printed; Docker keeps 4096 bytes of a check's output."""


def ready(port: int, encrypted: bool = False) -> tuple[bool, str]:
    """Return whether `/readyz` on this host answers 200, and the body of the answer.

    It does not use urllib, which would send the request to a proxy of the environment. The
    certificate of an `encrypted` server is not checked: it names the host that clients use, not
    this one.
    """
    connection = http.client.HTTPConnection("localhost", port, timeout=TIMEOUT)
    if encrypted:
        unchecked = ssl._create_unverified_context()  # noqa: S323 (this host, and no secret)
        connection = http.client.HTTPSConnection(
            "localhost", port, timeout=TIMEOUT, context=unchecked
        )
    try:
        connection.request("GET", "/readyz?verbose")
        response = connection.getresponse()
        body = response.read().decode("utf-8", "replace")
    except (OSError, http.client.HTTPException) as error:
        return False, f"no answer on port {port}: {error!r}"
    else:
        return response.status == http.client.OK, f"{response.status} {body}"
    finally:
        connection.close()


if __name__ == "__main__":
    tls = bool(os.environ.get("DARKROOM_TLS_CERTIFICATE"))
    healthy, said = ready(int(os.environ.get("DARKROOM_PORT", "8000")), tls)
    print(said[:SHOWN])
    sys.exit(0 if healthy else 1)
