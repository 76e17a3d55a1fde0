"""What a run of `serve_gpu` does: written to a file for the processes that do it."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.bench import load
from tests.bench.wrk import read_requests, write_requests

IMAGES_PER_MULTIPART = 16
BOUNDARY = b"darkroom-bench"
LABELS = "/classify?top_k=1"
BLURRED = {
    "blurred": "/filter?name=gaussian_blur&sigma=2&format=jpeg",
    "blurred_by_gpu": "/filter?name=gaussian_blur&sigma=2&format=jpeg&encoder=gpu",
}
"""Raw requests that ask for a JPEG back, encoded by the front ends or by the GPU."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Files, sizes and durations; `folder` also takes the logs."""

    folder: str
    wrk: str
    weights: str
    weights_file: str
    darkroom: list[str]
    seconds: float
    patience: float
    warm_up: float
    connections: list[int]
    multipart_connections: list[int]
    peer_connections: list[int]
    litserve: list[list[str]]

    def write(self) -> Path:
        """Write the plan to a file in its folder, and return the path."""
        path = Path(self.folder) / "plan.json"
        path.write_text(json.dumps(asdict(self)))
        return path

    @classmethod
    def read(cls, path: Path) -> "Plan":
        """Read a plan that `write` has written."""
        return cls(**json.loads(path.read_text()))

    def requests(self, images: str, form: str) -> Path:
        """Return the path of the file with these images as requests of this form: raw, multipart or
        blurred.
        """
        return Path(self.folder) / f"{images}-{form}.requests"

    def write_requests(self, images: str, jpegs: list[bytes]) -> None:
        """Write all files of an image set."""
        write_requests(self.requests(images, "raw"), raw_requests(LABELS, jpegs))
        write_requests(self.requests(images, "multipart"), multipart_requests(jpegs))
        for form, path in BLURRED.items():
            write_requests(self.requests(images, form), raw_requests(path, jpegs))

    def jpegs(self, images: str) -> list[bytes]:
        """Return the images of a set, read from its raw requests."""
        return [r.partition(b"\r\n\r\n")[2] for r in read_requests(self.requests(images, "raw"))]


def raw_requests(path: str, jpegs: list[bytes]) -> list[bytes]:
    """Return a request with each image as its body."""
    return [load.raw_post(path, jpeg, "image/jpeg") for jpeg in jpegs]


def multipart_requests(jpegs: list[bytes]) -> list[bytes]:
    """Return requests with forms of 16 images to be labelled; images beyond the last are left out.

    With fewer than 16 images there is one form.
    """
    n = min(IMAGES_PER_MULTIPART, len(jpegs))
    bodies = [multipart(jpegs[i : i + n]) for i in range(0, len(jpegs) - n + 1, n)]
    kind = f"multipart/form-data; boundary={BOUNDARY.decode()}"
    return [load.raw_post(LABELS, body, kind) for body in bodies]


def multipart(jpegs: list[bytes]) -> bytes:
    """Return a form with these files."""
    parts = [
        b'--%s\r\nContent-Disposition: form-data; name="files"; filename="%d.jpg"\r\n'
        b"Content-Type: image/jpeg\r\n\r\n%s\r\n" % (BOUNDARY, number, jpeg)
        for number, jpeg in enumerate(jpegs)
    ]
    return b"".join(parts) + b"--%s--\r\n" % BOUNDARY
