"""The commands by topic, each with its summary. Nothing is imported to list them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Entry:
    """A command: its summary, and whether it reads the settings, which takes 0.3 s of CPU time."""

    summary: str
    has_settings: bool = True


TOPICS: dict[str, dict[str, Entry]] = {
    "serve": {
        "serve": Entry("serve HTTP until stopped"),
        "health": Entry("tell whether a server is ready", has_settings=False),
    },
    "images without a server": {
        "classify": Entry("print the labels of images"),
        "filter": Entry("put images through filters"),
        "filters": Entry("list the filters", has_settings=False),
    },
    "prepare a machine": {
        "weights": Entry("download, verify or list weights"),
        "kernels": Entry("compile the GPU's kernels in advance"),
        "completion": Entry("print the completion script of a shell", has_settings=False),
    },
}
"""Each command is a module of `app.cli.commands`."""

COMMANDS = {name: entry for topic in TOPICS.values() for name, entry in topic.items()}


def overview() -> str:
    """Return the lines of the help that list all commands by topic."""
    lines = []
    for topic, entries in TOPICS.items():
        lines.append(f"\n{topic}:")
        lines += [f"  {name:12}{entry.summary}" for name, entry in entries.items()]
    return "\n".join(lines)
