"""Apply new settings to a running server of one process on SIGHUP."""

import asyncio
import logging
import signal
import threading

from app.service import Service
from models.settings import Settings
from models.settings_loading import IN_PLACE, reloaded

log = logging.getLogger("darkroom.settings")


def reload(service: Service) -> None:
    """Read the settings file and the API keys again; a wrong file changes nothing."""
    try:
        if service.keys is not None:
            service.keys.reload()
        found, later = reloaded(service.settings, IN_PLACE)
    except Exception as error:  # the server is protected: it goes on as it is
        log.error("nothing was reloaded: %s", error)
        return
    if later:
        log.warning("these settings need a restart: %s", ", ".join(later))
    apply(service, found)
    log.info("the settings were read again")


def apply(service: Service, settings: Settings) -> None:
    """Use other settings from now on; admitted work continues."""
    service.settings = settings
    service.admission.set_limits(settings)
    service.pipeline.set_unread_limit(settings.max_bytes_in_flight)
    service.fetcher.set_concurrency(settings.fetch_concurrency)
    service.set_batching(settings)


def listen(service: Service) -> None:
    """Reload on SIGHUP; say on SIGUSR2 that one process cannot replace itself."""
    if threading.current_thread() is threading.main_thread():
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGHUP, reload, service)
        text = "SIGUSR2: one process cannot replace itself; serve with --front-ends"
        loop.add_signal_handler(signal.SIGUSR2, log.warning, text)
