"""LitServe with dynamic batching, tuned: several workers a GPU, its faster queue, raw bodies.

BENCH_WEIGHTS names the weights file. Run: python -m tests.bench.peers.litserve_app --port 8000
"""

import argparse
import os
from typing import Annotated, Any

import litserve
import torch
from fastapi import Body

from tests.bench.peers.classifier import Classifier, crop


class Classify(litserve.LitAPI):
    """A worker decodes its batch image by image, then classifies it at once."""

    def setup(self, device: str) -> None:
        self.classifier = Classifier(os.environ["BENCH_WEIGHTS"], device, self.max_batch_size)

    def decode_request(
        self, request: Annotated[bytes, Body(media_type="image/jpeg")]
    ) -> "Any":  # an array; LitServe reads the annotations of this function
        return crop(request)

    def batch(self, inputs: list[Any]) -> list[Any]:
        return inputs

    def predict(self, x: list[Any]) -> list[tuple[int, float]]:
        return self.classifier.labels(x)

    def unbatch(self, output: list[tuple[int, float]]) -> list[tuple[int, float]]:
        return output

    def encode_response(self, output: tuple[int, float]) -> dict[str, float]:
        return {"class_id": output[0], "score": output[1]}


def main() -> None:
    """Run the command line."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--port", type=int, required=True)
    arguments.add_argument("--workers", type=int, default=10)
    arguments.add_argument("--batch", type=int, default=32)
    arguments.add_argument("--wait", type=float, default=0.005, help="seconds to fill a batch")
    arguments.add_argument("--servers", type=int, default=4, help="processes that speak HTTP")
    options = arguments.parse_args()
    server = litserve.LitServer(
        Classify(api_path="/classify", max_batch_size=options.batch, batch_timeout=options.wait),
        accelerator="cuda" if torch.cuda.is_available() else "cpu",
        devices=1,
        workers_per_device=options.workers,
        fast_queue=True,
    )
    server.run(
        host="127.0.0.1",
        port=options.port,
        num_api_servers=options.servers,
        generate_client_file=False,
        log_level="warning",
    )


if __name__ == "__main__":
    main()
