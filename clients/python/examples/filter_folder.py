"""Make small grey copies of all photos of a folder: python filter_folder.py URL FOLDER TARGET

Every file appears whole or not at all.
"""

import sys
from pathlib import Path

from darkroom_client import Client, Operations

CHAIN: Operations = [{"name": "resize", "width": 160, "height": 120}, "grayscale"]


def main(url: str, folder: str, target: str) -> None:
    """Print the file of each photo, or why there is none."""
    photos = sorted(Path(folder).glob("*.jpg"))
    with Client(url) as client:
        for result in client.filter_stream(photos, CHAIN, format="webp", out=target):
            if result.image is None:
                print(result.source, "failed:", result.error and result.error.detail)
            else:
                print(result.source, "->", result.image.path, result.image.size, "bytes")


if __name__ == "__main__":
    main(*sys.argv[1:])
