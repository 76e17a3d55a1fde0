"""Recognise camera raw files, which look like TIFFs of their thumbnails or like no image at all.

Adobe's DNG 1.7, chapter 4; TIFF/EP (ISO 12234-2) for the files of most cameras.
"""

import re

from models.codec.bounds.exif import MAX_ENTRIES, first_directory
from models.codec.bounds.tiff import tag_values

_BY_MAGIC = re.compile(
    rb"(?P<CR2>(?:II\*\0|MM\0\*).{4}CR)"
    rb"|(?P<CR3>.{4}ftypcrx )"
    rb"|(?P<RAF>FUJIFILMCCD-RAW)"
    rb"|(?P<ORF>IIR[OS]|MMOR)"
    rb"|(?P<RW2>IIU\0)"
    rb"|(?P<X3F>FOVb)"
    rb"|(?P<MRW>\0MRM)",
    re.DOTALL,
)
_BY_MAKE = {
    b"NIKON": "NEF",
    b"SONY": "ARW",
    b"PENTAX": "PEF",
    b"RICOH": "PEF",
    b"SAMSUNG": "SRW",
    b"OLYMPUS": "ORF",
    b"PANASONIC": "RW2",
    b"CANON": "CR2",
    b"HASSELBLAD": "3FR",
    b"EPSON": "ERF",
    b"KODAK": "DCR",
    b"EASTMAN KODAK": "DCR",
    b"LEAF": "MOS",
    b"PHASE ONE": "IIQ",
    b"FUJIFILM": "RAF",
}
"""Kinds of files, by the beginning of the camera's maker."""

_NEW_SUBFILE, _PHOTOMETRIC, _MAKE, _SUB_IFDS, _DNG_VERSION = 254, 262, 271, 330, 50706
_REDUCED = 1
_SENSOR = frozenset({32803, 34892})
"""Photometric kinds of unprocessed samples: of a colour filter array, and linear."""

_MAKE_BYTES = 32


def camera_raw(data: bytes) -> str | None:
    """Return the kind of a camera raw file, as its extension names it; None for all other files."""
    if match := _BY_MAGIC.match(data):
        return match.lastgroup
    entries = first_directory(data)
    if entries is None or len(entries) > MAX_ENTRIES:
        return None
    tags = {int(each["tag"]): each for each in entries[::-1]}
    if _DNG_VERSION in tags:
        return "DNG"
    found = tag_values(data, entries)
    sensor = found.get(_PHOTOMETRIC, (0,))[0] in _SENSOR
    reduced = found.get(_NEW_SUBFILE, (0,))[0] & _REDUCED and _SUB_IFDS in tags
    if not (sensor or reduced) or (make := tags.get(_MAKE)) is None:
        return None
    at, size = int(make["value"]), min(int(make["number"]), _MAKE_BYTES)
    name = data[at : at + size].upper()
    return next((kind for start, kind in _BY_MAKE.items() if name.startswith(start)), "TIFF/EP")
