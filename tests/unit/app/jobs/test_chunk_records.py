"""Records of chunks reach the disk before they count, and so does the name of their file."""

import asyncio
import errno
import os
from pathlib import Path

import pytest

from app.jobs.runner import ChunkRecords
from app.jobs.store.tables import Claim, Span

CLAIM = Claim("1", 0, Span(0, 1, 0, 5), 1)


def test_a_name_is_synced_although_the_first_records_did_not_reach_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync, full = os.fsync, [True]
    folders: list[str] = []

    def noted(descriptor: int) -> None:
        if full[0]:
            raise OSError(errno.ENOSPC, "no space left on device")
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        if os.path.isdir(path):
            folders.append(path)
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)

    async def test() -> None:
        records = ChunkRecords(CLAIM, tmp_path)
        await records.add(b"{}\n", failed=False)
        with pytest.raises(OSError, match="no space"):
            records.store(tmp_path / "results")
        full[0] = False
        stored = records.store(tmp_path / "results")
        assert (tmp_path / stored.file).read_bytes()[stored.at :] == b"{}\n"
        records.close()

    asyncio.run(test())
    assert folders == [str(tmp_path)]
