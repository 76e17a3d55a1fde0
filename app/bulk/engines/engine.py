"""What every engine takes and gives: tasks in order, and finished records in the same order."""

from collections.abc import AsyncGenerator, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from app.bulk.sources.source import Source


@dataclass(frozen=True, slots=True)
class Task:
    """One image to answer; `index` is its position among all images of the command.

    `target` is the file for its result, below the folder of results; with `replaces` it may exist.
    """

    index: int
    source: Source
    target: str = ""
    replaces: bool = False


@dataclass(frozen=True, slots=True)
class Finished:
    """The answer of one image: its record as a line of JSON, and whether it is an error."""

    line: bytes
    failed: bool


class Engine(Protocol):
    """Answers images: in this process, in several processes, or by a server."""

    @property
    def identity(self) -> Mapping[str, object] | None:
        """Return the properties of the loaded network that records depend on, None without one."""

    def answers(self, tasks: Iterator[Task]) -> AsyncGenerator[list[Finished], None]:
        """Yield the answers of all tasks, in their order, as many at a time as there are.

        Tasks are taken on a thread, as far ahead as the engine needs to stay busy. Close the
        generator to end the work.
        """

    async def aclose(self) -> None:
        """End what the engine has started."""


def tasks_of(sources: Iterator[Source], first: int = 0) -> Iterator[Task]:
    """Return the sources as tasks, numbered from `first` on."""
    return (Task(number, source) for number, source in enumerate(sources, first))
