"""CPU time of a front end for an image over gRPC, against the same request over HTTP.

Method. The processes of `tests.bench.front_end`: a worker that answers at once with five labels,
and one front end, which listens for HTTP and gRPC. The load asks `/v2` and `ModelInfer` for the
best class of the same photos by turns, in windows of `--count` images: one photo a request with 32
requests at a time, then eight a request with 8. The result is CPU microseconds of the front end for
each image, the median over the windows, and the rate of gRPC by that of HTTP for the same CPU time:
the median over the pairs of windows of the time over HTTP by the time over gRPC. CPU time also
depends on what else the machine does, which falls on both windows of a pair.

Run: python -m tests.bench.grpc_front_end [--pairs 9] [--count 640]
"""

import argparse
import asyncio
import json
import os
import statistics
import sys
from collections.abc import Sequence
from datetime import UTC, datetime

import grpc.aio

from app.grpc_service.messages import message_class
from tests.bench.front_end import IMAGES, ROOT, FrontEnd, Load, started
from tests.bench.images import jpegs, subsampled
from tests.bench.inference_protocol import encoded
from tests.ports import free_port

METHOD = "/inference.GRPCInferenceService/ModelInfer"

CHANNELS = 4
"""Connections of gRPC, which carry several calls each."""

FORMS = {"one": (1, 32), "eight": (8, 8)}
"""Images of a request, and requests at a time."""


def message(files: Sequence[bytes]) -> bytes:
    """Return the message that asks for the best class of each file."""
    asked = message_class("inference.ModelInferRequest")(model_name="resnet18")
    asked.inputs.add(name="IMAGE", datatype="BYTES", shape=[len(files)])
    asked.outputs.add(name="SCORES").parameters["classification"].int64_param = 1
    raw = b"".join(len(each).to_bytes(4, "little") + each for each in files)
    asked.raw_input_contents.append(raw)
    serialized: bytes = asked.SerializeToString()
    return serialized


async def _send(port: int, messages: Sequence[bytes], at_once: int, count: int) -> None:
    numbers = iter(range(count))
    options = [("grpc.use_local_subchannel_pool", 1)]
    channels = [
        grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=options) for _ in range(CHANNELS)
    ]

    async def sender(place: int) -> None:
        call = channels[place % CHANNELS].unary_unary(METHOD)
        for number in numbers:
            await call(messages[number % len(messages)])

    await asyncio.gather(*map(sender, range(at_once)))
    await asyncio.gather(*(each.close() for each in channels))


def _over_grpc(
    front_end: FrontEnd, port: int, messages: Sequence[bytes], form: tuple[int, int], count: int
) -> float:
    """Return the CPU microseconds of the front end for each of `count` images over gRPC."""
    each, at_once = form
    before = front_end.cpu_seconds()
    asyncio.run(_send(port, messages, at_once, count // each))
    return (front_end.cpu_seconds() - before) / (count // each * each) * 1e6


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--count", type=int, default=640, help="images of each window")
    options = parser.parse_args()
    source, photos = jpegs(IMAGES)
    files = [subsampled(photo) for photo in photos]
    port = free_port()
    os.environ["DARKROOM_GRPC_PORT"] = str(port)
    found: dict[str, object] = {}
    with started(ROOT, 1) as front_end:
        for name, form in FORMS.items():
            each, at_once = form
            groups = [files[n : n + each] for n in range(0, len(files), each)]
            over_http = Load([encoded(group) for group in groups], each, at_once)
            messages = [message(group) for group in groups]
            pairs = [
                (
                    front_end.measured(over_http, options.count),
                    _over_grpc(front_end, port, messages, form, options.count),
                )
                for _ in range(options.pairs + 1)
            ][1:]  # the first warms up
            found[name] = {
                "http_us_per_image": round(statistics.median(http for http, _ in pairs), 1),
                "grpc_us_per_image": round(statistics.median(rpc for _, rpc in pairs), 1),
                "rate_by_http": round(statistics.median(http / rpc for http, rpc in pairs), 3),
            }
    report = {
        "benchmark": "grpc_front_end",
        "command": " ".join(["python -m tests.bench.grpc_front_end", *sys.argv[1:]]),
        "date": datetime.now(UTC).date().isoformat(),
        "cores": len(os.sched_getaffinity(0)),
        "images": source,
    }
    print(json.dumps(report | found))


if __name__ == "__main__":
    main()
