"""The number of Ray Serve replicas by the images that wait, for `autoscaling_config`.

Ray copies this module into its controller, so it imports nothing.
"""

from typing import Any


def by_images(context: Any) -> tuple[float, dict[str, Any]]:
    """Return how many replicas give each as many images as `target_ongoing_requests` says.

    Ray's own policy counts calls, and a call may carry one image or a whole batch. Images that are
    waiting or computed are counted by the replicas, as a mean over `look_back_period_s`; a call
    that waits in a front end because all replicas have enough counts as one more. Ray applies the
    bounds and the delays of the configuration to the result.
    """
    images = (context.aggregated_metrics or {}).get("images", {})
    running = {each for each in images if each in set(context.running_replicas)} or set(images)
    waiting = sum([images[each] for each in running]) + (context.total_queued_requests or 0)
    return waiting / context.config.get_target_ongoing_requests(), {}
