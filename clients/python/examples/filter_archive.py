"""Label the photos of a ZIP and make a ZIP of blurred copies: python filter_archive.py URL ZIP OUT

An archive goes to the server as it is, in one request. Archives with more images than a request
may have are jobs: `client.jobs.create_from(archive, "classify")`.
"""

import sys

from darkroom_client import Client


def main(url: str, archive: str, out: str) -> None:
    """Print the label of each photo as it finishes, then write the copies."""
    with Client(url) as client:
        for result in client.archives.classify(archive, top_k=1):
            if result.predictions:
                print(result.source, "is a", result.predictions[0].label)
            else:
                print(result.source, "failed:", result.error and result.error.detail)
        chain = {"name": "gaussian_blur", "sigma": 3}
        client.archives.filter_to_zip(archive, chain, out, format="jpeg")
        print("wrote", out)


if __name__ == "__main__":
    main(*sys.argv[1:])
