"""Label a folder in the background of the server: python job.py URL FOLDER LABELS.jsonl

The server needs a folder for jobs (DARKROOM_DATA_FOLDER). This program may be ended and started
again at any time: the same images make the same job, and results that are in the file stay.
"""

import json
import sys
from pathlib import Path

from darkroom_client import Client


def main(url: str, folder: str, target: str) -> None:
    """Append the label of each photo to the file, as the server finishes it."""
    photos = sorted(Path(folder).glob("*.jpg"))
    results = Path(target)
    have = len(results.read_text().splitlines()) if results.exists() else 0
    with Client(url) as client, results.open("a") as file:
        job = client.jobs.create(photos, "classify", top_k=1, idempotency_key=results.name)
        for result in client.jobs.results(job.id, offset=have):
            labels = [best.label for best in result.predictions or ()]
            file.write(json.dumps({"photo": result.id, "labels": labels}) + "\n")
            file.flush()
        print(client.jobs.wait(job.id).items)


if __name__ == "__main__":
    main(*sys.argv[1:])
