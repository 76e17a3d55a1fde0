"""`darkroom devices`: show the GPUs and the CPU of this machine, and what `serve` would use."""

import argparse
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from app.cli.flags import add_settings
from app.cli.standard_output import show
from app.processes.plan import Plan
from models.exit_codes import ExitCode
from models.settings import Precision, Settings
from workers.supervision.gpu_discovery import cuda_version, describe_gpus, why_no_gpu
from workers.supervision.startup import cores

EXAMPLES = ("darkroom devices", "darkroom devices --gpus 1 --threads 4 --json")


@dataclass(frozen=True, slots=True)
class Device:
    """A device or a part of it, its description, and why `serve` would not use it (empty: used)."""

    device: str
    description: str
    unused: str = ""


def declare(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument(
        "--json", dest="as_json", action="store_true", help="print one line of JSON"
    )
    add_settings(parser, ("gpus", "gpu_workers", "front_ends", "threads", "precision"))


def run(settings: Settings, as_json: bool) -> int:
    """Print the devices; the exit code is FAILED if `serve` refuses these flags."""
    plan, refusal = None, ""
    try:
        plan = Plan.of(settings)
    except ValueError as error:
        refusal = str(error)
    gpus = [*_gpus(plan)]
    devices = [*gpus, *_cpu(settings, computes=all(each.unused for each in gpus))]
    devices = [replace(each, unused=each.unused or refusal) for each in devices]
    if as_json:
        shown = {
            "devices": [asdict(each) | {"used": not each.unused} for each in devices],
            "plan": plan and asdict(plan),
            "refusal": refusal,
        }
        show(json.dumps(shown) + "\n")
    else:
        for each in devices:
            state = f"not used: {each.unused}" if each.unused else "used"
            show(f"{each.device:13} {', '.join(filter(None, [each.description, state]))}\n")
        show(f"{'serve':13} {_planned(plan) if plan else f'refuses these flags: {refusal}'}\n")
    return ExitCode.FAILED if refusal else ExitCode.OK


def _gpus(plan: Plan | None) -> Iterator[Device]:
    version, found = cuda_version(), describe_gpus()
    for number, gpu in enumerate(found):
        major, minor = gpu.capability
        text = f"{gpu.name}, {gpu.memory >> 20:,} MiB, compute capability {major}.{minor}"
        if plan is not None and number >= plan.gpus:
            unused = f"--gpus {plan.gpus} leaves it out"
        elif number and plan is not None and not plan.front_ends:
            unused = "with --front-ends 0 one process computes, on GPU 0"
        else:
            unused = _unfit(f"{major}{minor}")
        yield Device(f"GPU {number}", f"{text}, driver for CUDA {version}", unused)
    if not found:
        yield Device("GPU", "none", why_no_gpu())


def _unfit(capability: str) -> str:
    """Return why the engine of GPUs cannot use a compute capability, as `90`; empty if it can.

    The engine makes the same checks when it starts. They import torch, which takes seconds.
    """
    try:
        from workers.engines.cuda.kernels import check_capability, check_majors

        check_majors()
        check_capability(capability)
    except (ImportError, RuntimeError) as error:
        return str(error)
    return ""


def _cpu(settings: Settings, *, computes: bool) -> Iterator[Device]:
    from workers.engines.cpu.network import bf16_instructions

    total, used = os.cpu_count() or 1, cores(settings)
    text = f"{_model()}, {used} of {total} cores" if used < total else f"{_model()}, {total} cores"
    # Beside GPUs the cores serve HTTP, decode and encode.
    yield Device("CPU", text)
    for name, has in bf16_instructions().items():
        if not has:
            unused = "this CPU has no such instructions"
        elif not computes:
            unused = "networks are computed on a GPU"
        elif settings.precision not in (Precision.AUTO, Precision.BF16):
            unused = f"--precision {settings.precision} needs none"
        else:
            unused = ""
        yield Device(name, "", unused)


def _model() -> str:
    """Return the name of the CPU, or only `CPU` where the kernel does not tell it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return "CPU"
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "CPU")


def _planned(plan: Plan) -> str:
    if not plan.front_ends:
        return f"one process, with a worker on {'GPU 0' if plan.gpus else 'the CPU'}"
    where = f"for each of {plan.gpus} GPUs" if plan.gpus else "on the CPU"
    return f"{plan.front_ends} front ends, and {plan.gpu_workers} worker(s) {where}"
