"""Images in buckets: `s3://bucket/photos` stands for all of them below that prefix."""

from collections.abc import Iterator, Sequence

from app.bulk.errors import WrongUsage
from app.bulk.sources.source import Source
from app.bulk.sources.walk import Choice, LeftOut
from app.storage.buckets import MISSING, entries, installed
from app.storage.location import Location, parse
from models.domain.errors import ServiceError
from models.settings import Settings

SCHEMES = ("s3://", "gs://", "az://")
"""What the addresses of objects begin with."""


def is_address(name: str) -> bool:
    """Return whether a source is in a bucket."""
    return name.startswith(SCHEMES)


def is_object(name: str) -> bool:
    """Return whether an address names one image, by its ending, and not all below a prefix."""
    return not Choice().refusal(name)


def allowed(settings: Settings, names: Sequence[str]) -> Settings:
    """Return settings that allow the addresses among the arguments of a command to be read.

    A server reads from buckets only what its operator allows; who starts a command is its operator.
    """
    own = tuple(name for name in names if is_address(name))
    return settings.model_copy(update={"storage_allow": (*settings.storage_allow, *own)})


def check(name: str) -> str | None:
    """Return why an address can never be read, or None."""
    try:
        parse(name)
    except ServiceError as error:
        return error.detail
    return None if installed() else MISSING


def below(name: str, choice: Choice, left_out: LeftOut) -> Iterator[Source]:
    """Yield the images below an address in the order of the bucket, which is that of their keys.

    WrongUsage if it cannot be listed.
    """
    location = _location(name)
    try:
        for inner in (each.name for each in entries(location)):
            reason = _refusal_of_folders(choice, inner) or choice.refusal(inner)
            if reason:
                left_out.add(reason, inner)
            else:
                yield Source(str(location.below(inner)), inner)
    except ServiceError as error:
        raise WrongUsage(f"{name}: {error.detail}") from None


def _location(name: str) -> Location:
    try:
        return parse(name)
    except ServiceError as error:
        raise WrongUsage(f"{name}: {error.detail}") from None


def _refusal_of_folders(choice: Choice, inner: str) -> str:
    """Return why a folder on the way to an object is left out, or an empty text."""
    folders = inner.split("/")[:-1]
    paths = ("/".join(folders[: n + 1]) for n in range(len(folders)))
    return next(filter(None, map(choice.refusal_of_folder, paths)), "")
