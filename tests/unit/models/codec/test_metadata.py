"""Orientation by EXIF alone, and copyright notices from all the places where files have them."""

import io
import struct
from typing import Any

import numpy as np
import pytest
from PIL import Image as PillowImage
from PIL import PngImagePlugin

from models.codec import Encoding, ImageFormat, decode, encode, encoded, open_file
from tests.pictures import as_image, drawing
from tests.pictures import encoded as file_of

LIMIT = 1_000_000
NOTICE = "© 2024 Example & Sons"
XMP_START = b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">'
ORIENTED = XMP_START + (
    b'<rdf:Description xmlns:tiff="http://ns.adobe.com/tiff/1.0/" tiff:Orientation="6"/>'
    b"</rdf:RDF></x:xmpmeta>"
)
DC = b'xmlns:dc="http://purl.org/dc/elements/1.1/"'
RIGHTS = {
    "the default language": b"<rdf:Description "
    + DC
    + b"><dc:rights><rdf:Alt><rdf:li xml:lang='de'>nein</rdf:li>"
    b"<rdf:li xml:lang='x-default'>%s</rdf:li></rdf:Alt></dc:rights></rdf:Description>",
    "one item": b"<rdf:Description "
    + DC
    + b">\n<dc:rights>\n<rdf:Alt>\n<rdf:li>%s</rdf:li></rdf:Alt></dc:rights></rdf:Description>",
    "text": b"<rdf:Description " + DC + b"><dc:rights>%s</dc:rights></rdf:Description>",
    "an attribute": b"<rdf:Description " + DC + b' dc:rights="%s"/>',
    "another prefix": b"<rdf:Description "
    + DC.replace(b":dc", b":d")
    + b"><d:rights><rdf:Alt><rdf:li>%s</rdf:li></rdf:Alt></d:rights></rdf:Description>",
}
FORMATS = ["JPEG", "PNG", "WEBP", "TIFF", "AVIF"]


def with_xmp(format: str, xmp: bytes, **options: Any) -> bytes:
    if format == "PNG":
        info = PngImagePlugin.PngInfo()
        info.add_itxt("XML:com.adobe.xmp", xmp.decode())
        return file_of(drawing(32, 16), "PNG", pnginfo=info, **options)
    if format == "TIFF":
        entries = dict(options.get("exif", {}))
        return file_of(drawing(32, 16), "TIFF", tiffinfo={700: xmp, **entries})
    return file_of(drawing(32, 16), format, xmp=xmp, **options)


def exif(**entries: Any) -> PillowImage.Exif:
    block = PillowImage.Exif()
    for tag, value in entries.items():
        block[int(tag[1:])] = value
    return block


def photoshop(*resources: tuple[int, bytes]) -> bytes:
    body = b"Photoshop 3.0\0"
    for number, content in resources:
        body += b"8BIM" + struct.pack(">HHI", number, 0, len(content)) + content
        body += b"\0" * (len(content) % 2)
    plain = file_of(drawing(32, 16), "JPEG")
    return plain[:2] + b"\xff\xed" + struct.pack(">H", len(body) + 2) + body + plain[2:]


def iptc(text: bytes) -> bytes:
    sets = [(1, 90, b"\x1b%G"), (2, 5, b"title"), (2, 116, text)]
    return b"".join(b"\x1c" + bytes((a, b)) + struct.pack(">H", len(c)) + c for a, b, c in sets)


def text_png(kind: str) -> bytes:
    info = PngImagePlugin.PngInfo()
    if kind == "iTXt":
        info.add_itxt("Copyright", NOTICE, zip=True)
    else:
        info.add_text("Copyright", NOTICE, zip=kind == "zTXt")
    return file_of(drawing(32, 16), "PNG", pnginfo=info)


def behind_pixels(data: bytes) -> bytes:
    start = data.index(b"tEXt") - 4
    end = start + 12 + int.from_bytes(data[start : start + 4], "big")
    return data[:start] + data[end:-12] + data[start:end] + data[-12:]


@pytest.mark.parametrize("format", FORMATS)
def test_xmp_alone_turns_no_image(format: str) -> None:
    opened = open_file(with_xmp(format, ORIENTED), max_pixels=LIMIT)
    assert (opened.info.width, opened.info.height, opened.info.orientation) == (32, 16, 1)
    found = opened.decode()
    assert as_image(found.image).pixels.shape[:2] == (16, 32)
    assert (found.info.width, found.info.orientation) == (32, 1)


@pytest.mark.parametrize("format", FORMATS)
def test_exif_turns_images_whatever_xmp_says(format: str) -> None:
    data = with_xmp(format, ORIENTED.replace(b'"6"', b'"3"'), exif=exif(x274=8))
    found = decode(data, max_pixels=LIMIT)
    assert as_image(found.image).pixels.shape[:2] == (32, 16)
    assert found.info.orientation == 8


def test_a_jpeg_for_the_device_is_not_turned_by_xmp() -> None:
    found = encoded(with_xmp("JPEG", ORIENTED), max_pixels=LIMIT)
    assert found is not None
    assert (found.info.width, found.info.orientation) == (32, 1)


def test_exif_inside_an_avif_does_not_turn_it() -> None:
    entry = struct.Struct("<HHIH")
    block = b"Exif\0\0II*\0\x08\0\0\0\1\0" + entry.pack(277, 3, 1, 6) + bytes(6)
    data = file_of(drawing(32, 16), "AVIF", exif=block)
    assert data.count(entry.pack(277, 3, 1, 6)) == 1
    turned = data.replace(entry.pack(277, 3, 1, 6), entry.pack(274, 3, 1, 6))
    found = decode(turned, max_pixels=LIMIT)
    assert as_image(found.image).pixels.shape[:2] == (16, 32)
    assert found.info.orientation == 1


@pytest.mark.parametrize("form", RIGHTS)
@pytest.mark.parametrize("format", FORMATS)
def test_the_rights_of_xmp_are_the_copyright(format: str, form: str) -> None:
    escaped = NOTICE.replace("&", "&amp;").encode()
    xmp = XMP_START + RIGHTS[form] % escaped + b"</rdf:RDF></x:xmpmeta>"
    found = decode(with_xmp(format, xmp), max_pixels=LIMIT)
    assert found.copyright == NOTICE


@pytest.mark.parametrize(
    "data",
    [
        photoshop((1028, iptc(NOTICE.encode()))),
        photoshop((1005, bytes(16)), (1028, iptc(NOTICE.encode("latin-1"))), (1061, bytes(16))),
        file_of(drawing(8, 8), "TIFF", tiffinfo={33723: iptc(NOTICE.encode())}),
        *map(text_png, ("tEXt", "zTXt", "iTXt")),
        behind_pixels(text_png("tEXt")),
    ],
    ids=[
        "IPTC",
        "IPTC in Latin-1",
        "IPTC in TIFF",
        "tEXt",
        "zTXt",
        "iTXt",
        "tEXt behind the pixels",
    ],
)
def test_iptc_and_the_text_of_a_png_are_the_copyright(data: bytes) -> None:
    found = decode(data, max_pixels=LIMIT)
    assert found.copyright == NOTICE
    image = as_image(found.image)
    for metadata in ("strip", "keep"):
        for given in (found.exif, bytes(exif(x271="Maker").tobytes())):
            made = encode(
                image, ImageFormat.JPEG, Encoding(metadata=metadata),
                copyright=found.copyright, exif=given,
            )  # fmt: skip
            assert decode(made, max_pixels=LIMIT).copyright == NOTICE


def test_the_copyright_in_exif_counts_before_all_others() -> None:
    xmp = XMP_START + RIGHTS["text"] % b"of XMP" + b"</rdf:RDF></x:xmpmeta>"
    for format in FORMATS:
        data = with_xmp(format, xmp, exif=exif(x33432="of EXIF"))
        assert decode(data, max_pixels=LIMIT).copyright == "of EXIF"


@pytest.mark.parametrize(
    "xmp",
    [
        b"<!DOCTYPE a [<!ENTITY b '"
        + b"c" * 50
        + b"'>]><x "
        + DC
        + b"><dc:rights>&b;</dc:rights></x>",
        b"<x " + DC + b"><dc:rights>" + b"<" * 500_000,
        b"<x " + DC + b">" + b"<dc:rights>" * 50_000,
        DC * 10_000,
    ],
    ids=["entity", "open", "many", "prefixes"],
)
def test_hostile_xmp_costs_nothing_and_expands_nothing(xmp: bytes) -> None:
    data = with_xmp("TIFF", xmp)
    found = decode(data, max_pixels=LIMIT)
    assert found.copyright in (None, "&b;")


@pytest.mark.parametrize("cut", range(0, 30, 3))
def test_broken_iptc_is_no_error(cut: int) -> None:
    block = iptc(b"notice")[:cut]
    found = decode(photoshop((1028, block)), max_pixels=LIMIT)
    assert as_image(found.image).pixels.shape == (16, 32, 3)
    assert np.asarray(PillowImage.open(io.BytesIO(photoshop((1028, block))))).any()
