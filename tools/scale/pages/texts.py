"""The parts of docs/scale.md that no result changes, and how paragraphs are wrapped."""

import textwrap

HEAD = """# A billion images a day

`python -m tools.scale` simulates, and writes this page, its charts and
`tests/bench/results/scale.json`; do not edit the page. Rates and times come from the committed
results in `tests/bench/results`. Nothing was run on more than two GPUs: everything beyond is
computed or simulated.
"""

MODEL = """## What is simulated

`tools/scale` runs events in virtual time. Real are the micro-batcher with its deadlines
(`workers/scheduling/batcher.py`), the router (`workers/backends/routing.py`; the model of one host
counts jobs, as the measured commits did) and admission's forecast
(`app/admission/prediction/forecast.py`). Modelled are:

- a front end: one image at a time, by its measured CPU time, with a coefficient of variation of
  0.5;
- a worker on a GPU: its launch thread, the JPEG engines and the kernels that the workers of a GPU
  share, the threads that collect, three slots;
- a worker on a CPU: two batches side by side, or one on all cores where no two ran in the last half
  second;
- the network, lost workers and racks, restarts, images sent again, stragglers, and an autoscaler
  that adds its replicas once.

Not modelled: clients that differ, large images, other traffic on the links, and Ray's own
processes. Router and admission know the whole cluster; how they would learn it is simulated only in
the rows about old knowledge. All images are of one kind.
"""

INPUTS = {
    "CPU time of a front end for an image, latency of one connection": (
        "`serve_gpu.json`, each run for itself; `two_gpus_first.json`, one GPU, and the second run "
        "for itself"
    ),
    "JPEG engines for one thread and two; kernels of an image": (
        "`engine_rates.json`, `profile_gpu.json`"
    ),
    "CPU time of the launch and collect threads, in full batches": (
        "`two_gpus_first.json`, one GPU, forms, 768 connections"
    ),
    "collecting an image that the GPU encodes": "`two_gpus_first.json`, one GPU, 768 connections",
    "how much slower cores are, and how long front ends wait, when the whole host is busy": (
        "`two_gpus_first.json`, two servers side by side, 768 connections"
    ),
    "spread of launches": "chosen so that the p99 of run 1 at 512 connections is met",
    "a worker on a CPU: time of an image, and of a batch": (
        "`serve_cpu.json` (loop, one connection), `overload.json` (capacity, one image alone)"
    ),
    "restart": "`ready_gpu.json`",
}
"""What the model takes from which result."""

LIMITS = """## What these figures do not say

- The run with two GPUs is of one machine. Rates of one kind of machine differ by a fifth between
  runs.
- Predictions have the range of their seeds only. The error of the model, which the comparisons
  show, is larger.
- Most scenarios last 2.5 s of virtual time, of which the first second does not count; queues that
  grow for longer are not seen. `random` at 90 % and knowledge of 1 s ago still grow then.
- No cluster of this size was started. Ray Serve's own limits (its controller, its proxies, its
  health checks) are not in the model.
- The tail of the latency over HTTP is longer than the simulated one in most runs, so take simulated
  p99s as lower bounds.
"""


def paragraph(text: str, indent: str = "") -> str:
    """Return a text in lines of at most 138 columns, with a blank before each percent sign."""
    spaced = text.replace(" %", "%").replace("%", " %")
    return textwrap.fill(
        spaced,
        135 if indent else 138,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
