"""The configuration of uvicorn that follows from the settings."""

import math

import uvicorn
from starlette.types import ASGIApp

from app.connections.tls.contexts import http1_contexts
from models.settings import Settings

LAST_ANSWERS = 2.0
"""Seconds after the drain timeout in which requests that were given up are answered."""


def config_of(app: ASGIApp, settings: Settings) -> uvicorn.Config:
    """Return the configuration of a server that answers by `app`."""
    return uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=bool(settings.trusted_proxies),
        forwarded_allow_ips=[str(each) for each in settings.trusted_proxies],
        ssl_context_factory=http1_contexts(settings),
        timeout_graceful_shutdown=math.ceil(settings.drain_timeout + LAST_ANSWERS),
    )
