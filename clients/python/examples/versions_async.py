"""Label photos and make two versions of each: python versions_async.py URL TARGET PHOTO…

A photo may be a path or a URL. Each is decoded once.
"""

import asyncio
import sys

from darkroom_client import AsyncClient, Versions

VERSIONS: Versions = [
    {"id": "small", "name": "resize", "width": 160, "height": 120, "format": "webp"},
    {"id": "edges", "ops": [{"name": "grayscale"}, {"name": "sobel"}], "format": "png"},
]


async def main(url: str, target: str, *photos: str) -> None:
    """Print the label and the files of each photo."""
    async with AsyncClient(url) as client:
        async for result in client.process_stream(photos, VERSIONS, top_k=1, out=target):
            labels = [best.label for best in result.predictions or ()]
            files = [version.image.path for version in result.versions or () if version.image]
            print(result.source, result.status, *labels, *files)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
