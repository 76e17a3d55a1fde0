"""The memory that opening a file takes: reading its header, before any pixel is decoded.

Parsers copy the metadata of a file as often as they like, so it follows from the size of the file.
"""

HEADER_BYTES = 64 << 20
"""Bytes that opening takes beside a file: tables, profiles and chunks that libraries unpack."""

COPIES_OF_FILE = 4
"""Copies of a file that parsers may make: some collect its parts, inflate them and join them. Each
of those of a PNG that is one text of 31 MB took 31 MB, and all of them 146."""

LARGE_FILE = 4 << 20
"""Bytes of a file from which it waits for that memory before it is opened. Smaller ones do not:
their copies take 16 MiB at most."""


def opening_bytes(file: int) -> int:
    """Return the bytes that opening a file of `file` bytes may take."""
    return HEADER_BYTES + COPIES_OF_FILE * file
