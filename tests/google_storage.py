"""A local server with the XML API of Google Cloud Storage: `python -m tests.google_storage PORT`.

Its requests for objects, lists and parts are those of S3 (Google documents that as
interoperability), so moto answers them. Google's signatures are not checked: moto takes the
bearer token, which is empty here, for a damaged signature of S3.
"""

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import run_simple

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment

_MOTO = DomainDispatcherApplication(create_backend_app)


def application(environ: "WSGIEnvironment", start: "StartResponse") -> Iterable[bytes]:
    """Answer a request as S3 answers the owner of a bucket."""
    environ["HTTP_AUTHORIZATION"] = "AWS test:signature"
    answer: Iterable[bytes] = _MOTO(environ, start)
    return answer


if __name__ == "__main__":
    run_simple("127.0.0.1", int(sys.argv[1]), application, threaded=True)
