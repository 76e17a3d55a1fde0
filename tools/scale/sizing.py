"""A billion images a day on paper: machines, links, storage and cost, from measured rates."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from tools.scale import assumptions as given
from tools.scale import measured

DAY = 86_400


@dataclass(frozen=True, slots=True)
class Machine:
    """A kind of machine: images a second by measurement, and USD an hour by assumption."""

    name: str
    per_second: float
    price: float
    vcpus: int
    source: str


@dataclass(frozen=True, slots=True)
class Size:
    """Machines for the peak and for the mean, and USD for a million images with each."""

    machine: Machine
    at_peak: int
    at_mean: int
    cost_always: float
    cost_scaled: float


def mean_rate() -> float:
    """Return images a second over a day."""
    return given.IMAGES_A_DAY.value / DAY


def peak_rate() -> float:
    """Return images a second at the peak."""
    return mean_rate() * given.PEAK.value


def _served(form: str) -> list[float]:
    """Return the highest rates of all runs on one GPU."""
    return [
        max(run["parts"]["darkroom"]["subsampled"][form]["images_per_second"].values())
        for run in measured.result("serve_gpu")["runs"]
        if "darkroom" in run["parts"]
    ]


def machines() -> Iterator[Machine]:
    """Yield the kinds of machine; of several runs the slowest counts."""
    gpu, core = given.GPU_HOUR.value, given.CORE_HOUR.value
    name = "one H200 with 16 cores"
    yield Machine(f"{name}, one photo a request", min(_served("raw")), gpu, 16, "serve_gpu.json")
    yield Machine(f"{name}, forms of 16", min(_served("multipart")), gpu, 16, "serve_gpu.json")
    amx = measured.result("serve_cpu")["http"]["32"]["per_second"]
    yield Machine("one core with AMX (2 vCPUs)", amx, 2 * core, 2, "serve_cpu.json")
    plain = measured.result("overload")["capacity_per_second"]
    yield Machine("2 vCPUs that other programs kept busy", plain, 2 * core, 2, "overload.json")


def sizes() -> Iterator[Size]:
    """Yield the size of each fleet; a spare machine is added to the peak's."""
    for machine in machines():
        usable = machine.per_second * given.USE.value
        peak, mean = math.ceil(peak_rate() / usable) + 1, math.ceil(mean_rate() / usable)
        million = given.IMAGES_A_DAY.value / 1e6
        costs = (count * machine.price * 24 / million for count in (peak, mean))
        yield Size(machine, peak, mean, *costs)


def photo_bytes() -> float:
    """Return the mean bytes of a photo of the measurements."""
    return float(measured.result("serve_gpu")["runs"][0]["images"]["subsampled_kB"] * 1e3)


def front_end_seconds() -> float:
    """Return the most CPU seconds that a front end took for a photo in the runs on one GPU."""
    found = []
    for run in measured.result("serve_gpu")["runs"]:
        if "darkroom" in run["parts"]:
            best = run["parts"]["darkroom"]["subsampled"]["raw"]["best"]
            found.append(best["server_cores"]["front end"] / best["per_second"])
    return float(max(found))


@dataclass(frozen=True, slots=True)
class Need:
    """What the peak needs of a resource, and how many of them that is."""

    resource: str
    need: str
    units: str


def needs() -> Iterator[Need]:
    """Yield what a billion images a day need beside machines that compute."""
    peak, photo = peak_rate(), photo_bytes()
    usable = given.LINK.value * given.LINK_USE.value
    bits = peak * photo * 8 / 1e9
    yield Need(
        "network into the front ends",
        f"{bits:.1f} Gbit/s at the peak, {bits / given.PEAK.value:.1f} as a mean",
        f"{math.ceil(bits / usable)} links of {given.LINK.value:g} Gbit/s, half used",
    )
    yield Need(
        "the same once more, if workers are on other hosts",
        f"{2 * bits:.1f} Gbit/s in and out at the peak",
        f"{math.ceil(2 * bits / usable)} such links",
    )
    cores = peak * front_end_seconds()
    yield Need(
        "front ends, one photo a request",
        f"{cores:.1f} busy cores at the peak ({front_end_seconds() * 1e6:.0f} µs of CPU each)",
        f"{math.ceil(cores / given.USE.value)} front ends at {given.USE.value:.0%}",
    )
    yield Need(
        "reading sources from an object store",
        f"{peak:,.0f} GETs a second, {given.IMAGES_A_DAY.value * photo / 1e12:.0f} TB a day",
        f"{math.ceil(peak / given.GETS.value)} prefixes",
    )
    yield Need(
        "records, if they are kept",
        f"{given.IMAGES_A_DAY.value * given.STORED.value / 1e12:.1f} TB a day",
        f"{mean_rate() * given.STORED.value / 1e6:.0f} MB/s as a mean",
    )
