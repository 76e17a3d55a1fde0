"""Write docs/benchmarks.md and its charts from the committed results: `make docs`.

No figure is typed: each one comes from a file in `tests/bench/results`, and each section links its
program. A test compares the page with the output of this program.
"""

import textwrap
from collections.abc import Iterator
from typing import Any

from tools import benchmark_plots
from tools.benchmark_plots import LITSERVE, PEERS, ROOT, gpu_filters, measured, results, runs

PAGE = ROOT / "docs" / "benchmarks.md"

HEAD = """# Benchmarks

`make docs` writes this page and its charts from the results in `tests/bench/results`; do not edit
it. Figures of different machines or days must not be compared with each other.
"""

SHOWN = ("serve_gpu", "serve_cpu", "filters_gpu", "filters_cpu", "overload", "soak")
"""The results of this page."""

LIMITS = """## What these figures do not say

- Clients, load generators and servers share one machine in each of them, without a network between
  them.
- The peers were tuned by us. Somebody with more experience may make them faster; their programs
  stand in `tests/bench/peers`.
- Latency against load has few points on a GPU, because wrk has no rate control: one connection, an
  open loop at half the highest rate, and the highest rate.
- Rented machines share memory and caches with others. Ranges are those of all committed runs.
"""


def page() -> str:
    """Return the whole page as Markdown."""
    parts = (machines, rates, latency, filters_gpu, filters_cpu, overload, soak)
    return "\n".join([HEAD, *("\n".join([*part(), ""]) for part in parts), LIMITS])


def machines() -> Iterator[str]:
    """Yield the table of results: machine, day and command of each."""
    yield "## Machines"
    yield ""
    yield "| result | machine | day or commit | command |"
    yield "|---|---|---|---|"
    for name in SHOWN:
        found = results(name)
        run = found["runs"][0] if "runs" in found else found
        when = ", ".join(str(run[key]) for key in ("date", "commit") if key in run)
        yield f"| `{name}.json` | {_machine(run)} | {when} | `{run['command']}` |"


def _machine(run: Any) -> str:
    """Return the machine of a result as far as the result names it."""
    if "machine" in run:
        return str(run["machine"])
    gpu = [f"one {run['gpu'].split(',')[0]}"] if "gpu" in run else []
    cores = [f"{run['cores']} cores"] if "cores" in run else [run["note"]]
    return ", ".join([*gpu, *cores])


def rates() -> Iterator[str]:
    """Yield the section about images a second over HTTP on a GPU."""
    run = results("serve_gpu")["runs"][0]
    agreeing = [share for name, share in run["ratios"].items() if name.startswith("labels_as_")]
    yield "## Labels over HTTP, on one GPU"
    yield ""
    yield _chart("rates", "Images a second of Darkroom and of its peers")
    yield ""
    yield _paragraph(
        f"The rate at which photos of {run['images']['subsampled_kB']:.0f} kB are labelled, one a "
        "request. A full bar is the slowest run, a pale one the fastest. All servers have the same "
        f"weights; a peer gives at least {min(agreeing):.0%} of the photos the label that Darkroom "
        "gives. "
        f"LitServe {run['versions']['litserve']} has the faster of two settings of workers and "
        "batches."
    )
    yield ""
    yield "| run | Darkroom | " + " | ".join(PEERS.values()) + " | Darkroom / LitServe |"
    yield "|---|---|" + "---|" * (len(PEERS) + 1)
    for number, parts in enumerate(runs(), 1):
        found = [measured(parts, name) for name in ("darkroom", *PEERS)]
        shown = [f"{each['best']['images_per_second']:,.0f}" if each else "–" for each in found]
        yield f"| {number} | {' | '.join(shown)} | {_ratio(parts)} |"
    yield ""
    yield _chart("connections", "Images a second by the number of connections, first run")
    yield ""
    yield method("bench/serve_gpu")


def _ratio(parts: Any) -> str:
    ours, theirs = measured(parts, "darkroom"), measured(parts, LITSERVE)
    if not ours or not theirs:
        return "–"
    return f"{ours['best']['images_per_second'] / theirs['best']['images_per_second']:.2f}"


def latency() -> Iterator[str]:
    """Yield the section about latency against load."""
    found = results("serve_cpu")
    chart = _chart("latency", "Median and p99 of the latency against images a second")
    text = (
        "Both charts are about one photo a request. On the GPU, load grows from one connection to "
        f"{runs()[0]['darkroom']['subsampled']['raw']['best']['connections']}; on the CPU, from 1 "
        "to 32. A plain loop without a server labels "
        f"{found['plain_loop_per_second']:.0f} images a second on that CPU, so the server at 32 "
        f"connections reaches {found['ratio_32']:.1%} of it. One image alone takes "
        f"{found['plain_single_ms']} ms in the loop, and {found['http']['1']['p50_ms']} ms over "
        "HTTP."
    )
    yield from _section("Latency against load", chart, text, "bench/serve_cpu")


def filters_gpu() -> Iterator[str]:
    """Yield the section about filters on a GPU."""
    found, shown = results("filters_gpu"), gpu_filters()
    half = sum(each["share_of_copy"] >= 0.5 for each in shown)
    chart = _chart("filters_gpu", "Rate of each filter as a share of that of a copy")
    text = (
        f"A copy moves {found['copy_images_per_second']:,} images of 1920 × 1080 a second; no "
        "filter that reads and writes every pixel can be faster. "
        f"{half} of {len(shown)} filters and sizes reach half of it. `crop` reads a part of the "
        "image only. Kernels that are newer than the whole run were measured apart, and count. "
        "Kernels alone were measured, without decoding, encoding and HTTP."
    )
    yield from _section("Filters on a GPU", chart, text, "bench/filters_gpu")


def filters_cpu() -> Iterator[str]:
    """Yield the section about filters on a CPU."""
    found = results("filters_cpu")
    ratios = sorted(each["ratio"] for each in found["filters"])
    median = ratios[len(ratios) // 2]
    chart = _chart("filters_cpu", "Time of each filter beside that of another library")
    text = (
        f"The time of each filter divided by that of the fastest call of OpenCV {found['opencv']}, "
        f"Pillow {found['pillow']} or NumPy {found['numpy']} for the same job: the median is "
        f"{median:.2f}, {sum(each <= 1.1 for each in ratios)} of {len(ratios)} are at most 1.1. "
        "Another library may round otherwise; the docstring explains ratios above 1.5."
    )
    yield from _section("Filters on a CPU", chart, text, "bench/filters_cpu")


def overload() -> Iterator[str]:
    """Yield the section about overload."""
    found = results("overload")
    died = sum(each["died_at_deadline"] for each in found["phases"])
    chart = _chart("overload", "Good answers and the time of refusals by load")
    text = (
        f"The capacity was {found['capacity_per_second']} images a second. At 20 times as many "
        f"requests the server gave {found['phases'][-1]['goodput_per_second']} good answers a "
        f"second, {found['least_goodput_of_peak']:.0%} of the best phase, and refused the others. "
        f"{died} accepted requests died at their deadline of {found['deadline_ms']} ms. "
        "[reliability.md](reliability.md) says which promises are not kept yet."
    )
    yield from _section("Overload", chart, text, "bench/overload")


def soak() -> Iterator[str]:
    """Yield the section about the soak."""
    found = results("soak")
    chart = _chart("soak", "Memory, descriptors, threads and processes in the soak")
    text = (
        f"{found['minutes']:.0f} minutes of mixed traffic, {sum(found['answers'].values()):,} "
        f"answers, while {len(found['faults'])} processes were killed; {found['lost']} good "
        "requests were lost with them. Each point is the median of a fifth of the time."
    )
    yield from _section("Memory in the soak", chart, text, "chaos/soak")


def _section(title: str, chart: str, text: str, program: str) -> Iterator[str]:
    """Yield a section of one chart, one paragraph and a link to the method of `program`."""
    yield from (f"## {title}", "", chart, "", _paragraph(text), "", method(program))


def method(program: str) -> str:
    """Return a link to a program in `tests`, whose docstring describes the method."""
    return f"The docstring of [{program}.py](../tests/{program}.py) describes the method."


def _paragraph(text: str) -> str:
    """Return a text in lines of at most 138 columns, with a blank before each percent sign."""
    spaced = text.replace("%", " %")
    return textwrap.fill(spaced, 138, break_long_words=False, break_on_hyphens=False)


def _chart(name: str, title: str) -> str:
    return f"![{title}](benchmarks/{name}.svg)"


def main() -> None:
    """Write the page and its charts."""
    benchmark_plots.main()
    PAGE.write_text(page())


if __name__ == "__main__":
    main()
