"""Start the jobs of a server, where it has a folder for them.

SQLAlchemy is imported here and not before, so that other servers do not wait for it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

from app.executors import job_images
from app.routes.jobs import work_of
from app.service import Service


async def start_jobs(service: Service, stop: Callable[[Service], Awaitable[None]]) -> Service:
    """Let a service work on the jobs of its data folder, if one is set; return the service.

    It is stopped where that fails. The text of ValueError says which setting is wrong.
    """
    settings = service.settings
    if settings.data_folder is None:
        return service
    from app.jobs.files import DataFolder
    from app.jobs.jobs import Jobs
    from app.jobs.store.database import opened
    from app.jobs.work import ImageOutput, ImageWorker, Permission

    async with AsyncExitStack() as failing:
        failing.push_async_callback(stop, service)
        folder, storage = DataFolder(settings.data_folder), service.fetcher.storage
        await asyncio.to_thread(folder.make)
        engine = await opened(settings.jobs_database, settings.data_folder)
        failing.push_async_callback(engine.dispose)
        permission, output = Permission(service.admission), ImageOutput(storage)
        service.jobs = Jobs(
            settings,
            engine,
            folder,
            storage,
            ImageWorker(service.pipeline, permission, output, settings.max_deadline),
            work_of(service.computing),
            job_images(settings, service.counters.front_ends),
            service.counters,
            service.stopping.is_set,
            service.metrics.on_job_item,
        )
        service.jobs.on_states = service.metrics.on_jobs
        await service.jobs.start()
        failing.pop_all()
    return service
