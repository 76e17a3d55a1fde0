"""The messages between a bulk command and the actors that answer its images, in MessagePack.

They are bytes for Ray, so that an actor can say that Darkroom is missing on its node, or differs,
before anything of Darkroom is unpacked there.
"""

import pickle
from typing import Any

import msgspec

from app.bulk.engines.channel import SentTask
from app.bulk.engines.in_process import Work
from models.settings import Settings

PER_NODE = ("cache_folder",)
"""Settings that a node chooses itself unless they are given: it may have another home folder."""

OF_A_SERVER = {"api_keys_file": None, "data_folder": None, "settings_file": None}
"""Settings of files that an actor does not need and that nodes may not have."""


class Orders(msgspec.Struct, array_like=True):
    """What an actor does; `work` is pickled."""

    settings: dict[str, Any]
    work: bytes


class SharedFile(msgspec.Struct, array_like=True):
    """A file of a shared folder, its size in bytes and the whole second of its last change."""

    path: bytes
    size: int
    changed: int


class Asked(msgspec.Struct, array_like=True):
    """Tasks that an actor answers together; if there is a file `shared`, its node must see it."""

    tasks: list[SentTask]
    shared: SharedFile | None = None


class Started(msgspec.Struct, array_like=True):
    """An actor's first answer: its network, the versions of libraries, or why it cannot work."""

    identity: dict[str, Any] | None = None
    versions: dict[str, str] = {}
    problem: str | None = None


class Answered(msgspec.Struct, array_like=True):
    """The record of an image, whether it is an error, and a filtered image with its format."""

    line: bytes
    failed: bool
    format: str | None = None
    data: bytes | None = None


def orders(settings: Settings, work: Work) -> bytes:
    """Return the encoded orders for an actor; `settings` are those of the command."""
    own = {name for name in PER_NODE if name not in settings.model_fields_set}
    values = settings.model_dump(mode="json", exclude=own) | OF_A_SERVER
    return encode(Orders(values, pickle.dumps(work)))


encode = msgspec.msgpack.Encoder().encode
decode_orders = msgspec.msgpack.Decoder(Orders).decode
decode_started = msgspec.msgpack.Decoder(Started).decode
decode_asked = msgspec.msgpack.Decoder(Asked).decode
decode_answers = msgspec.msgpack.Decoder(list[Answered]).decode
