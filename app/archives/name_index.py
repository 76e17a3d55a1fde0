"""Find a member by its name with 32 bytes of memory for each member."""

from collections.abc import Iterable

import numpy as np

from app.archives.member import Member

_BLOCK = 4096


class NameIndex:
    """Members by the hashes of their names, sorted; the names themselves are not kept.

    Python's hash of text has 64 bits and a secret key, so a client cannot make two names that share
    one, and among a million members a foreign name is found with a probability of 5e-14.
    """

    def __init__(self, members: Iterable[Member]) -> None:
        blocks: list[np.ndarray] = []
        block: list[tuple[int, int, int, int]] = []
        for each in members:
            block.append((hash(each.name), each.index, each.size, each.place))
            if len(block) == _BLOCK:
                blocks.append(np.array(block, np.int64))
                block.clear()
        table = np.concatenate([*blocks, np.array(block, np.int64).reshape(-1, 4)])
        self._table = table[np.argsort(table[:, 0], kind="stable")]

    def find(self, name: str) -> Member | None:
        """Return the last member of this name."""
        wanted = hash(name)
        after = int(np.searchsorted(self._table[:, 0], wanted, "right"))
        if not after or self._table[after - 1, 0] != wanted:
            return None
        _, index, size, place = self._table[after - 1].tolist()
        return Member(index, name, size, place)
