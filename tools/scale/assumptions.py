"""Figures that were not measured here: prices, links, limits of other systems. Change them here.

`python -m tools.scale --page` writes the page again with other values.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Assumption:
    """A value with its unit, and where it comes from."""

    value: float
    unit: str
    why: str


IMAGES_A_DAY = Assumption(1e9, "images a day", "the question")
PEAK = Assumption(3, "times the mean", "the load of the busiest hour of a day")
USE = Assumption(0.7, "of the capacity at the peak", "room for lost hosts; see the latencies below")
GPU_HOUR = Assumption(4.0, "USD an hour", "one H200 with 16 cores, rented")
CORE_HOUR = Assumption(0.05, "USD an hour", "one vCPU (a hyperthread) with 2 GiB, rented")
LINK = Assumption(25, "Gbit/s a host", "a common link of rented hosts")
LINK_USE = Assumption(0.5, "of a link", "room for bursts")
GETS = Assumption(5500, "GETs a second and prefix", "an object store's documented rate")
STORED = Assumption(1000, "bytes an image", "a record with five labels and its timings")
NETWORK = Assumption(0.5, "ms one way", "between hosts of one site, with both kernels")
NOTICE = Assumption(10, "s", "until a host without power is noticed: Ray Serve's health check")
UPSCALE = Assumption(30, "s", "Ray Serve's default `upscale_delay_s`")
RACK = Assumption(40, "workers", "what one rack holds")
SLOWNESS = Assumption(4, "times the time", "a straggler: a host with a noisy neighbour or swap")
DEADLINE = Assumption(3, "s", "that of the overload measurement")

ALL = {
    "Images a day": IMAGES_A_DAY,
    "Peak": PEAK,
    "Use at the peak": USE,
    "GPU host": GPU_HOUR,
    "vCPU": CORE_HOUR,
    "Link": LINK,
    "Use of a link": LINK_USE,
    "Object store": GETS,
    "Record": STORED,
    "Network": NETWORK,
    "Notice of a lost host": NOTICE,
    "Autoscaler's delay": UPSCALE,
    "Rack": RACK,
    "Straggler": SLOWNESS,
    "Deadline": DEADLINE,
}
"""All assumptions by the names that the page shows."""
