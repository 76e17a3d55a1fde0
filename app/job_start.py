"""Start the jobs of a server, where it has a folder for them.

SQLAlchemy is imported here and not before, so that other servers do not wait for it.
"""

from collections.abc import Awaitable, Callable

from app.executors import job_images
from app.routes.jobs import work_of
from app.service import Service


async def start_jobs(service: Service, stop: Callable[[Service], Awaitable[None]]) -> Service:
    """Let a service work on the jobs of its data folder, if one is set; return the service.

    It is stopped where that fails.

    The text of ValueError says which setting is wrong.
    """
    settings = service.settings
    if settings.data_folder is None:
        return service
    from app.jobs.jobs import Jobs
    from app.jobs.work import ImageOutput, ImageWorker, Permission

    worker = ImageWorker(
        service.pipeline,
        Permission(service.admission),
        ImageOutput(service.fetcher.storage),
        settings.max_deadline,
    )
    try:
        service.jobs = await Jobs.start(
            settings,
            service.fetcher.storage,
            worker,
            work_of(service.computing),
            job_images(settings, service.counters.front_ends),
            service.counters,
            service.stopping.is_set,
            service.metrics.on_job_item,
        )
        service.jobs.on_states = service.metrics.on_jobs
    except BaseException:
        await stop(service)
        raise
    return service
