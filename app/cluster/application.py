"""Build the Ray Serve application: which deployments there are, and what Ray is told of them.

A Serve configuration file overrides the options of each deployment by its name; `docker/ray` has
one. `darkroom.cluster` is what such a file imports.
"""

from typing import Any

from models.settings import Settings
from workers.supervision.startup import CPU_BATCH

FULL_BATCHES = 4
"""Calls that a worker's replica has at a time, divided by the images of a full batch. Ray counts
calls, and a call carries between one image and a batch (16 at least), or 16 MiB. The number is for
calls of one image, which must fill batches too: one that is computed, one that follows it, and as
much again, because calls of several front ends end together. Further calls wait in the front ends,
where they still may go to any replica. Larger calls are fewer: then the admission of the front ends
bounds what a replica has, and Ray gives a call to that one of two replicas which has fewer."""

HEALTH_PERIOD = 10.0
HEALTH_TIMEOUT = 60.0
"""Seconds between two checks of a replica, and those that one may take: under load a canary waits
for the images before it."""

ONE_LOOP = {
    "RAY_SERVE_RUN_USER_CODE_IN_SEPARATE_THREAD": "0",
    "RAY_SERVE_RUN_ROUTER_IN_SEPARATE_LOOP": "0",
}
"""Variables for the processes of all replicas: Ray Serve and Darkroom share one event loop there.
By default they have three, and each passage between two costs a call about 0.3 ms. Neither of them
blocks its loop: images are computed, decoded and encoded in other threads and processes."""

AT_A_FRONT_END = 2048
"""Requests that Ray hands to a front end at a time. It is more than admission lets in, so that
admission refuses, at once and with `Retry-After`, and requests do not wait unseen."""


def application(
    front_ends: type,
    workers: type,
    given: dict[str, Any],
    of_front_ends: dict[str, Any] | None = None,
    of_workers: dict[str, Any] | None = None,
) -> Any:
    """Return the application; `given` are settings by their names, over those of the environment.

    `of_front_ends` and `of_workers` are options of the deployments in place of the usual ones.
    Raises ValueError for settings that can never work.
    """
    from ray import serve

    settings = Settings.of(given, None)
    shown = settings.model_dump(mode="json")
    common: dict[str, Any] = {
        "graceful_shutdown_timeout_s": settings.drain_timeout + 5,
        "health_check_period_s": HEALTH_PERIOD,
        "health_check_timeout_s": HEALTH_TIMEOUT,
        "logging_config": {"enable_access_log": False},
    }
    computing: dict[str, Any] = {
        "name": "workers",
        "max_ongoing_requests": FULL_BATCHES * (settings.max_batch_size or CPU_BATCH),
        "ray_actor_options": {"num_cpus": settings.threads or 1},
    }
    ingress: dict[str, Any] = {
        "name": "front_ends",
        "max_ongoing_requests": AT_A_FRONT_END,
        "ray_actor_options": {"num_cpus": 1},
    }
    computing |= of_workers or {}
    ingress |= of_front_ends or {}
    for each in (computing, ingress):
        each["ray_actor_options"] |= {"runtime_env": {"env_vars": ONE_LOOP}}
    deployed: Any = serve.deployment(workers)
    handle = deployed.options(**common | computing).bind(shown)
    deployed = serve.deployment(serve.ingress()(front_ends))
    return deployed.options(**common | ingress).bind(handle, shown)
