"""Check the certificate and the key of the settings before anything is started, and use them."""

import ssl
from collections.abc import Callable

from app.connections.tls.messages import bounded
from models.settings import Settings


def check(settings: Settings) -> None:
    """Raise ValueError, which says what to do, if TLS is impossible with these settings."""
    certificate, key = settings.tls_certificate, settings.tls_key
    if certificate is None:
        if key is not None:
            raise ValueError("--tls-key is given without --tls-certificate; give both, or neither")
        return
    for flag, path in (("--tls-certificate", certificate), ("--tls-key", key)):
        if path is not None and not path.is_file():
            raise ValueError(f"{flag}: there is no file {path}")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)
    except (ssl.SSLError, OSError) as error:
        raise ValueError(
            f"--tls-certificate: {certificate} and its key cannot be used: {error}; "
            "both must be PEM files and belong together"
        ) from None


def http1_contexts(settings: Settings) -> Callable[..., ssl.SSLContext] | None:
    """Return what makes the context of connections that speak HTTP/1.1, whatever uvicorn gives it;
    None without a certificate.
    """
    certificate = settings.tls_certificate
    if certificate is None:
        return None

    def made(*_: object) -> ssl.SSLContext:
        context = bounded(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
        context.load_cert_chain(certificate, settings.tls_key)
        context.set_ciphers("DEFAULT")
        return context

    return made
