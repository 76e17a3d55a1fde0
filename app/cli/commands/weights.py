"""`darkroom weights`: download, verify or list published weights."""

import argparse
import sys
from pathlib import Path

from app.bulk.errors import WrongUsage
from app.cli.flags import add_settings
from models.did_you_mean import hint
from models.exit_codes import ExitCode
from models.networks.registry import CATALOGUE, NETWORKS, qualified_name
from models.networks.spec import Bundled, PublishedWeights
from models.settings import Settings
from workers.weights_store import WeightsStore, WeightsUnavailable, verified_sha256

EXAMPLES = (
    "darkroom weights list",
    "darkroom weights fetch resnet50",
    "darkroom weights verify imagenet1k_v1",
)


def declare(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("action", choices=["fetch", "verify", "list"])
    parser.add_argument(
        "name",
        nargs="?",
        default="imagenet1k_v1",
        help="weights as `list` names them, or a network (default: imagenet1k_v1)",
    )
    add_settings(parser, ["cache_folder"])


def run(settings: Settings, action: str, name: str) -> int:
    """Download, verify or list weights; return the exit code.

    `name` is a name of weights as the list shows it, or the name of a network, which stands for its
    default weights.
    """
    store = WeightsStore(settings.cache_folder)
    bundled = [spec.bundled for spec in NETWORKS.values() if spec.bundled is not None]
    if action == "list":
        for each in bundled:
            print(f"{each.name:22} {'present':8} {each.sha256}  {each.path}")
        for published, path, status in store.listing():
            title = qualified_name(published)
            print(f"{title:22} {status.value:8} {published.sha256}  {path}")
        return ExitCode.OK
    known: dict[str, Bundled | PublishedWeights] = {each.name: each for each in bundled}
    known |= CATALOGUE
    networks = {name: spec.weights[0] for name, spec in NETWORKS.items()}
    wanted = known.get(name) or networks.get(name)
    if wanted is None:
        there = [*known, *networks]
        raise WrongUsage(f"no weights {name!r}; {hint(name, there)}there are {', '.join(there)}")
    try:
        path = _get(store, action, wanted)
    except WeightsUnavailable as error:
        print(f"darkroom: {error}", file=sys.stderr)
        return ExitCode.FAILED
    print(f"{path} has sha256 {wanted.sha256}")
    return ExitCode.OK


def _get(store: WeightsStore, action: str, weights: Bundled | PublishedWeights) -> Path:
    """Return the path of the verified file; `fetch` downloads it where it is missing."""
    if isinstance(weights, Bundled):
        verified_sha256(weights.path, weights.sha256)
        return weights.path
    return store.fetch(weights) if action == "fetch" else store.open_verified(weights)
