"""The command line: `darkroom serve | classify | filter | filters | profile | weights`."""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any, TypeAlias

from pydantic import ValidationError

from app import commands
from models.codec import Encoding
from models.schemas import EncodingOptions
from models.settings import PREFIX, Settings, load_settings
from models.version import VERSION
from models.weights import resolve

EPILOG = f"Every setting is also a variable: --max-batch-size is {PREFIX}MAX_BATCH_SIZE."

LOCAL = ("threads", "gpus", "max_batch_size", "max_pixels", "fetch_allowed_networks")
"""The settings that matter without a server."""

WEIGHTS = ("weights", "weights_labels", "weights_sha256", "cache_folder", "precision")
"""And those that say what classifies."""

Actions: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code is 0, 1 (something failed) or 2 (wrong usage)."""
    options = vars(_parser().parse_args(arguments))
    command = options.pop("command")
    overrides = {k: options.pop(k) for k in list(options) if k in Settings.model_fields}
    try:
        settings = load_settings(**{k: v for k, v in overrides.items() if v is not None})
        resolve(settings)
    except ValidationError as error:
        for wrong in error.errors(include_url=False):
            flag = "--" + str(wrong["loc"][0]).replace("_", "-")
            print(f"darkroom: {flag}: {wrong['msg']} (given: {wrong['input']!r})", file=sys.stderr)
        return 2
    except ValueError as error:
        print(f"darkroom: {error}", file=sys.stderr)
        return 2
    try:
        code: int = command(settings, **options)
        sys.stdout.flush()
    except BrokenPipeError:  # `darkroom … | head` has what it wanted
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="darkroom",
        description="Labels and filtered images, over HTTP or right here; one answer per image.",
    )
    parser.add_argument("--version", action="version", version=VERSION)
    actions = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    _add(actions, "serve", commands.serve, "serve HTTP until stopped", list(Settings.model_fields))
    _add_classify(actions)
    _add_filter(actions)
    _add_profile(actions)
    shown = _add(actions, "filters", commands.filters, "list the filters", [])
    shown.add_argument("name", nargs="?", help="show everything about this filter")
    kept = ["cache_folder"]
    weights = _add(actions, "weights", commands.weights, "download, verify or list weights", kept)
    weights.add_argument("action", choices=["fetch", "verify", "list"])
    weights.add_argument("name", nargs="?", default="imagenet1k_v1", help="default: imagenet1k_v1")
    return parser


def _add_classify(actions: Actions) -> None:
    parser = _add(
        actions, "classify", commands.classify, "print the labels of images", WEIGHTS + LOCAL
    )
    parser.add_argument("files", nargs="+", metavar="FILE", help="files or URLs; - is stdin")
    parser.add_argument("--top-k", type=int, default=5, help="classes per image (default: 5)")


def _add_filter(actions: Actions) -> None:
    parser = _add(actions, "filter", commands.filter_files, "put images through filters", LOCAL)
    parser.add_argument("files", nargs="+", metavar="FILE", help="files or URLs; - is stdin")
    parser.add_argument(
        "--ops", required=True, help='filters in order: \'[{"name": "gaussian_blur", "sigma": 2}]\''
    )
    parser.add_argument(
        "-o", "--output", required=True, help="a file, a folder (for several files), or - (stdout)"
    )
    parser.add_argument("--format", choices=["jpeg", "png", "webp", "avif"], help="of the output")
    for field in fields(Encoding):
        text = str(EncodingOptions.model_fields[field.name].description)
        switch: dict[str, Any] = {"action": "store_true"} if field.default is False else {}
        parser.add_argument("--" + field.name.replace("_", "-"), help=text, **switch)


def _add_profile(actions: Actions) -> None:
    parser = _add(
        actions,
        "profile",
        commands.profile,
        "trace the worker under load",
        (*WEIGHTS, *LOCAL, "optimize"),
    )
    parser.add_argument("--seconds", type=float, default=1.0, help="of load (default: 1)")
    parser.add_argument("--ops", help="filters to run instead of classifying, as for `filter`")
    parser.add_argument(
        "-o", "--output", default="trace.json", help="Chrome trace (default: trace.json)"
    )


def _add(
    actions: Actions,
    name: str,
    command: Callable[..., int],
    text: str,
    settings: Sequence[str],
) -> argparse.ArgumentParser:
    parser = actions.add_parser(
        name, help=text, description=text.capitalize() + ".", epilog=EPILOG if settings else None
    )
    parser.set_defaults(command=command)
    group = parser.add_argument_group("settings") if settings else parser
    for field in settings:
        info = Settings.model_fields[field]
        default = info.get_default(call_default_factory=True, validated_data={})
        shown = "none" if default in (None, ()) else default
        group.add_argument(
            "--" + field.replace("_", "-"),
            metavar=field.rsplit("_", 1)[-1].upper(),
            help=f"{info.description} (default: {shown})".replace("%", "%%"),
        )
    return parser


if __name__ == "__main__":
    sys.exit(main())
