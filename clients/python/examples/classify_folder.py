"""Label all photos of a folder: python classify_folder.py URL FOLDER LABELS.csv

Results come as they finish, so any number of photos takes the same memory.
"""

import csv
import sys
from pathlib import Path

from darkroom_client import Client, Progress


def show(progress: Progress) -> None:
    """Print how far it is."""
    print(f"{progress.done} done, {progress.failed} failed", file=sys.stderr)


def main(url: str, folder: str, target: str) -> None:
    """Write a line for each photo: its path, the best label, and the score."""
    photos = (path for path in Path(folder).rglob("*") if path.suffix.lower() in (".jpg", ".png"))
    with Client(url) as client, open(target, "w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["photo", "label", "score", "error"])
        for result in client.classify_stream(photos, top_k=1, progress=show):
            if result.error is not None:
                table.writerow([result.source, "", "", result.error.detail])
            for best in result.predictions or ():
                table.writerow([result.source, best.label, f"{best.score:.4f}", ""])


if __name__ == "__main__":
    main(*sys.argv[1:])
