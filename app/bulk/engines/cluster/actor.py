"""The class that Ray runs on the nodes. Ray copies its text there, so it imports what it needs."""

from typing import Any


def actor_class() -> Any:
    """Return the class. It is made in a function because Ray sends such classes by value.

    A class of a module would be looked up on the node, and fail there without an explanation if
    Darkroom is missing.
    """

    class DarkroomActor:
        async def begin(self, version: str, orders: bytes) -> tuple[str | None, bytes]:
            """Start the engine; return a problem of the installation, or the encoded `Started`."""
            import sys

            try:
                from darkroom.script import find_packages

                find_packages()
                from models.version import VERSION
            except ImportError as error:
                return f"Darkroom is not installed for its {sys.executable} ({error})", b""
            if version != VERSION:
                return f"it has Darkroom {VERSION}, this command is of {version}", b""
            from app.bulk.engines.cluster.node import Node

            self.node = Node()
            return None, await self.node.begin(orders)

        async def answer(self, message: bytes) -> tuple[str | None, bytes]:
            """Return a problem that ends the command, or the encoded answers."""
            return await self.node.answer(message)

    return DarkroomActor
