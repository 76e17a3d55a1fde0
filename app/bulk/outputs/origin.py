"""What made a finished file of records: its options and its network.

It is kept in a small file beside that one, so that the records of new images, and of images that
failed, come from the same options and the same network as all others.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from app.bulk.errors import CannotWrite, WrongUsage
from app.bulk.outputs import atomic_file


class Origin:
    """The file about `finished`; `options` are those of this command on which results depend.

    Messages begin with the `flag` of the command that is refused.
    """

    def __init__(
        self, finished: Path, options: Mapping[str, object], flag: str = "--retry-failed"
    ) -> None:
        self._finished, self._flag = finished, flag
        self._options = json.loads(json.dumps(options, default=str))

    @property
    def _path(self) -> Path:
        path = self._finished.resolve()
        return path.with_name(f"{path.name}.origin.json")

    @property
    def is_known(self) -> bool:
        """Return whether there is a file about the finished file."""
        return self._path.exists()

    def check_options(self) -> None:
        """Raise WrongUsage if the first run had other options, or if it is not known."""
        if differences := [*_differences(self._read()["options"], self._options)]:
            raise WrongUsage(
                f"{self._flag}: {self._finished} was made with other options: "
                f"{', '.join(differences)}; use the earlier ones, or --force to begin anew"
            )

    def check_network(self, network: Mapping[str, object]) -> None:
        """Raise WrongUsage if another network, other weights or other labels made the rest."""
        if differences := [*_differences(self._read()["network"], network)]:
            raise WrongUsage(
                f"{self._flag}: another network made {self._finished} than is loaded now: "
                f"{', '.join(differences)}; make the earlier one available again, or classify all "
                "images anew into another file"
            )

    def keep(self, network: Mapping[str, object]) -> None:
        """Write the file about a run that has ended; without a network the known one stays."""
        try:
            known = network or (self._read()["network"] if self.is_known else {})
            text = json.dumps({"options": self._options, "network": dict(known)}) + "\n"
            atomic_file.write(self._path, text.encode(), replace=True)
        except OSError as error:
            raise CannotWrite.of(self._path, error) from None

    def _read(self) -> Mapping[str, Mapping[str, object]]:
        try:
            known = json.loads(self._path.read_bytes())
            return {"options": dict(known["options"]), "network": dict(known["network"])}
        except (OSError, ValueError, KeyError, TypeError):
            raise WrongUsage(
                f"{self._flag}: {self._path} is missing or cannot be read, so it is not known "
                f"what made {self._finished}; run the command for all images into another file"
            ) from None


def _differences(before: Mapping[str, object], now: Mapping[str, object]) -> Iterator[str]:
    for name in sorted({*before, *now}):
        if before.get(name) != now.get(name):
            yield f"{name} {now.get(name)} (was {before.get(name)})"
