"""The configuration of uvicorn that follows from the settings."""

import math

import uvicorn
from starlette.types import ASGIApp
from uvicorn.lifespan.on import LifespanOn, LifespanSendMessage

from app.connections.tls.contexts import http1_contexts
from models.settings import Settings

LAST_ANSWERS = 2.0
"""Seconds after the drain timeout in which requests that were given up are answered."""


def config_of(app: ASGIApp, settings: Settings) -> uvicorn.Config:
    """Return the loaded configuration of a server that answers by `app`."""
    config = uvicorn.Config(
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
    config.load()
    config.lifespan_class = _Lifespan
    return config


class _Lifespan(LifespanOn):
    """Start and end of the application; wrong settings end the start without a traceback."""

    async def send(self, message: LifespanSendMessage) -> None:
        if message["type"] == "lifespan.startup.failed" and wrong_settings(self.config.app):
            message["message"] = ""
        await super().send(message)


def wrong_settings(app: object) -> str:
    """Return the fault of the settings with which an application could not start, or an empty text.

    The next start would fail with them too.
    """
    return str(getattr(getattr(app, "state", None), "wrong_settings", ""))
