"""Find the photo that is most similar to another one: python find_similar.py URL PHOTO FOLDER"""

import math
import sys
from array import array
from pathlib import Path

from darkroom_client import Client


def cosine(one: "array[float]", other: "array[float]") -> float:
    """Return the cosine of the angle between two vectors."""
    return sum(map(float.__mul__, one, other)) / math.hypot(*one) / math.hypot(*other)


def main(url: str, photo: str, folder: str) -> None:
    """Compare embeddings, and print the nearest photo."""
    others = [path for path in Path(folder).glob("*.jpg") if not path.samefile(photo)]
    with Client(url) as client:
        wanted = client.classify(photo, output="embedding").vector
        found = client.classify(others, output="embedding", deadline=120)
    similar = {each.source: cosine(wanted, each.vector) for each in found if each.ok}
    nearest = max(similar, key=lambda source: similar[source])
    print(nearest, f"{similar[nearest]:.3f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
