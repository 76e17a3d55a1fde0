"""Copyright and EXIF: what is read, and what is kept."""

import io
import itertools
import struct
from functools import partial
from io import BytesIO
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image as PillowImage
from PIL import ImageCms, PngImagePlugin

from models.codec import Encoding, ImageFormat, decode, encode, encoded, open_file
from models.codec.decode import plain_header
from models.codec.jpeg import inspect
from models.codec.metadata import MAX_BLOCK, PREFIX, _by_pillow, _sound, kept
from models.codec.probe import read_header
from models.domain.errors import Undecodable
from models.domain.image import Image
from tests.pictures import as_image, drawing, exif
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


def segment(marker: int, body: bytes) -> bytes:
    return struct.pack(">BBH", 0xFF, marker, len(body) + 2) + body


def resources(*given: tuple[int, bytes]) -> bytes:
    body = b"Photoshop 3.0\0"
    for number, content in given:
        body += b"8BIM" + struct.pack(">HHI", number, 0, len(content)) + content
        body += b"\0" * (len(content) % 2)
    return body


def photoshop(*given: tuple[int, bytes]) -> bytes:
    plain = file_of(drawing(32, 16), "JPEG")
    return plain[:2] + segment(0xED, resources(*given)) + plain[2:]


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


def test_xmp_alone_turns_no_image() -> None:
    for format in FORMATS:
        opened = open_file(with_xmp(format, ORIENTED), max_pixels=LIMIT)
        assert (opened.info.width, opened.info.height, opened.info.orientation) == (32, 16, 1)
        found = opened.decode()
        assert as_image(found.image).pixels.shape[:2] == (16, 32)
        assert (found.info.width, found.info.orientation) == (32, 1)


def test_exif_turns_images_whatever_xmp_says() -> None:
    for format in FORMATS:
        data = with_xmp(format, ORIENTED.replace(b'"6"', b'"3"'), exif=exif(x274=8))
        found = decode(data, max_pixels=LIMIT)
        assert as_image(found.image).pixels.shape[:2] == (32, 16)
        assert found.info.orientation == 8


def test_exif_inside_an_avif_does_not_turn_it() -> None:
    entry = struct.Struct("<HHIH")
    block = b"Exif\0\0II*\0\x08\0\0\0\1\0" + entry.pack(277, 3, 1, 6) + bytes(6)
    data = file_of(drawing(32, 16), "AVIF", exif=block)
    assert data.count(entry.pack(277, 3, 1, 6)) == 1
    turned = data.replace(entry.pack(277, 3, 1, 6), entry.pack(274, 3, 1, 6))
    found = decode(turned, max_pixels=LIMIT)
    assert as_image(found.image).pixels.shape[:2] == (16, 32)
    assert found.info.orientation == 1


def test_the_rights_of_xmp_are_the_copyright() -> None:
    for format, form in itertools.product(FORMATS, RIGHTS):
        escaped = NOTICE.replace("&", "&amp;").encode()
        xmp = XMP_START + RIGHTS[form] % escaped + b"</rdf:RDF></x:xmpmeta>"
        found = decode(with_xmp(format, xmp), max_pixels=LIMIT)
        assert found.copyright == NOTICE


def test_iptc_and_the_text_of_a_png_are_the_copyright() -> None:
    for data in [
        photoshop((1028, iptc(NOTICE.encode()))),
        photoshop((1005, bytes(16)), (1028, iptc(NOTICE.encode("latin-1"))), (1061, bytes(16))),
        file_of(drawing(8, 8), "TIFF", tiffinfo={33723: iptc(NOTICE.encode())}),
        *map(text_png, ("tEXt", "zTXt", "iTXt")),
        behind_pixels(text_png("tEXt")),
    ]:
        found = decode(data, max_pixels=LIMIT)
        assert found.copyright == NOTICE
        image = as_image(found.image)
        for metadata in ("strip", "keep"):
            for block_given in (found.exif, bytes(exif(x271="Maker").tobytes())):
                made = encode(
                    image, ImageFormat.JPEG, Encoding(metadata=metadata),
                    copyright=found.copyright, exif=block_given,
                )  # fmt: skip
                assert decode(made, max_pixels=LIMIT).copyright == NOTICE


def test_the_copyright_in_exif_counts_before_all_others() -> None:
    xmp = XMP_START + RIGHTS["text"] % b"of XMP" + b"</rdf:RDF></x:xmpmeta>"
    for format in FORMATS:
        data = with_xmp(format, xmp, exif=exif(x33432="of EXIF"))
        assert decode(data, max_pixels=LIMIT).copyright == "of EXIF"


def test_hostile_xmp_costs_nothing_and_expands_nothing() -> None:
    for xmp in [
        b"<!DOCTYPE a [<!ENTITY b '"
        + b"c" * 50
        + b"'>]><x "
        + DC
        + b"><dc:rights>&b;</dc:rights></x>",
        b"<x " + DC + b"><dc:rights>" + b"<" * 500_000,
        b"<x " + DC + b">" + b"<dc:rights>" * 50_000,
        DC * 10_000,
    ]:
        data = with_xmp("TIFF", xmp)
        found = decode(data, max_pixels=LIMIT)
        assert found.copyright in (None, "&b;")


def test_broken_iptc_is_no_error() -> None:
    for cut in range(0, 30, 3):
        block = iptc(b"notice")[:cut]
        found = decode(photoshop((1028, block)), max_pixels=LIMIT)
        assert as_image(found.image).pixels.shape == (16, 32, 3)
        assert np.asarray(PillowImage.open(io.BytesIO(photoshop((1028, block))))).any()


EXIF_LIMIT = 50_000_000
KEEP = Encoding(metadata="keep")
PHOTO, GPS = 0x8769, 0x8825


def block(endian: str = ">") -> bytes:
    """Return the EXIF of a camera: orientation 6, a thumbnail's directory and maker's notes."""
    exif = PillowImage.Exif()
    exif.endian = endian
    exif[0x010F], exif[0x0110], exif[0x0132] = "Maker", "Model X", "2026:11:21 12:00:00"
    exif[0x0112] = 6
    exif[0x0100], exif[0x0101] = 4000, 3000
    exif[0x8298] = "© Zoë".encode()
    exif[PHOTO] = {
        0x829A: 0.004,
        0x9003: "2026:11:20 11:59:00",
        0x927C: b"\0\1\2 notes",
        0xA001: 65535,
        0xA002: 4000,
        0xA003: 3000,
    }
    exif[GPS] = {1: "N", 2: (48.0, 8.0, 0.5)}
    return exif.tobytes()


def jpeg(exif: bytes) -> bytes:
    picture = np.random.default_rng(0).integers(0, 256, (20, 32, 3), np.uint8)
    return file_of(PillowImage.fromarray(picture), exif=exif)


def again(data: bytes, format: ImageFormat, asked: Encoding) -> bytes:
    """Return the file decoded and encoded, as the service does it."""
    source = decode(data, max_pixels=EXIF_LIMIT)
    assert isinstance(source.image, Image)
    return encode(source.image, format, asked, copyright=source.copyright, exif=source.exif)


def read(data: bytes) -> PillowImage.Exif:
    return PillowImage.open(BytesIO(data)).getexif()


def test_what_still_holds_is_kept_and_the_picture_is_upright() -> None:
    for format, endian in itertools.product(["jpeg", "png", "webp", "avif"], ["<", ">"]):
        data = again(jpeg(block(endian)), ImageFormat(format), KEEP)
        exif = read(data)
        assert (exif[0x010F], exif[0x0110], exif[0x0132]) == (
            "Maker",
            "Model X",
            "2026:11:21 12:00:00",
        )
        assert 0x0112 not in exif
        assert 0x0100 not in exif
        photo, gps = exif.get_ifd(PHOTO), exif.get_ifd(GPS)
        assert (float(photo[0x829A]), photo[0x9003]) == (0.004, "2026:11:20 11:59:00")
        assert 0x927C not in photo
        assert (photo[0xA001], photo[0xA002], photo[0xA003]) == (1, 20, 32)
        assert gps[1] == "N"
        assert [float(each) for each in gps[2]] == [48.0, 8.0, 0.5]
        assert not exif.get_ifd(1)
        result = decode(data, max_pixels=EXIF_LIMIT)
        assert (result.copyright, result.info.orientation) == ("© Zoë", 1)
        assert (result.info.width, result.info.height) == (20, 32)


def test_stripped_leaves_the_copyright_alone() -> None:
    for format in ["jpeg", "png", "webp", "avif"]:
        exif = read(again(jpeg(block()), ImageFormat(format), Encoding()))
        assert dict(exif) == {0x8298: "© Zoë".encode().decode("latin-1")}


TAGS = {0x010F: "Maker", 0x0100: 4000, 0x0112: 6, 0x8298: "© Zoë".encode(), 0x0132: "2026"}


@given(
    st.sets(st.sampled_from(sorted(TAGS))),
    st.sampled_from("<>"),
    st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=3),
)
def test_exif_is_read_as_pillow_reads_it(
    tags: set[int], endian: str, changes: list[tuple[int, int]]
) -> None:
    made = PillowImage.Exif()
    made.endian = endian
    made.update({tag: TAGS[tag] for tag in tags})
    content = bytearray(made.tobytes())
    for place, value in changes:
        content[len(PREFIX) + place % (len(content) - len(PREFIX))] = value
    image = PillowImage.new("L", (1, 1))
    image.info["exif"] = bytes(content)
    found = _sound(bytes(content))
    assert found == _by_pillow(image) or (found is None and changes)


def test_a_jpeg_needs_no_pillow_for_usual_metadata() -> None:
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    xmp = XMP_START + RIGHTS["text"] % b"of XMP" + b"</rdf:RDF></x:xmpmeta>"
    usual = file_of(drawing(32, 16), exif=exif(x274=6), icc_profile=profile, xmp=xmp)
    rights = photoshop((1005, bytes(15)), (1028, iptc(b"of IPTC")))
    for data, notice in ((usual, "of XMP"), (rights, "of IPTC")):
        plain = inspect(data)
        assert plain is not None
        found = plain_header(data, plain, LIMIT)
        assert found[:3] == (*read_header(data, LIMIT)[:2], notice)
        assert found.image is None


EXIF_OF_TEXT = (
    PREFIX
    + struct.pack("<4sIH", b"II*\0", 8, 2)
    + b"".join(struct.pack("<HHI4s", *entry) for entry in ((282, 2, 1, b"1"), (296, 3, 1, b"\2")))
)


@pytest.mark.parametrize(
    ("marker", "body", "behind"),
    [
        (0xE2, b"ICC_PROFILE\0\1\1after the frame", b"\xff\xc4"),
        (0xE2, b"ICC_PROFILE\0", b"\xff\xdb"),
        (0xED, resources((1005, b"short"), (1028, iptc(b"hidden"))), b"\xff\xdb"),
        (0xE1, EXIF_OF_TEXT, b"\xff\xdb"),
    ],
    ids=["late profile", "empty profile", "short resolution", "resolution of text"],
)
def test_odd_metadata_of_a_jpeg_is_read_as_pillow_reads_it(
    marker: int, body: bytes, behind: bytes
) -> None:
    data = file_of(drawing(32, 16)).replace(behind, segment(marker, body) + behind, 1)
    plain = inspect(data)
    assert plain is not None
    found: list[object] = []
    for read in (partial(plain_header, data, plain, LIMIT), partial(read_header, data, LIMIT)):
        try:
            found.append(read()[:4])
        except Undecodable as error:
            found.append(error.detail)
    assert found[0] == found[1]


def test_a_jpeg_left_to_the_device_to_decode_keeps_its_exif() -> None:
    data = jpeg(block())
    found = encoded(data, max_pixels=EXIF_LIMIT)
    assert found is not None
    assert found.exif == decode(data, max_pixels=EXIF_LIMIT).exif


def test_formats_without_such_a_block_keep_the_copyright() -> None:
    tags = {0x8298: "me", 0x0110: "X"}
    data = file_of(PillowImage.new("RGB", (5, 4)), "TIFF", tiffinfo=tags)
    assert dict(read(again(data, ImageFormat.JPEG, KEEP))) == {0x8298: "me"}


def test_no_profile_is_written_for_the_pixels_are_srgb() -> None:
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    data = file_of(PillowImage.new("RGB", (5, 4)), icc_profile=profile, exif=block())
    for format in (ImageFormat.JPEG, ImageFormat.PNG, ImageFormat.WEBP, ImageFormat.AVIF):
        made = PillowImage.open(BytesIO(again(data, format, KEEP)))
        assert "icc_profile" not in made.info


def test_broken_blocks_are_left_out_and_the_copyright_stays() -> None:
    image = Image(np.zeros((3, 3, 3), np.uint8))
    for wrong in (b"", b"Exif\0\0", b"nonsense", PREFIX + b"II*\0", b"x" * (MAX_BLOCK + 1)):
        data = encode(image, ImageFormat.JPEG, KEEP, copyright="me", exif=wrong)
        assert dict(read(data)) == {0x8298: "me"}


def test_entries_that_share_their_values_do_not_make_the_block_grow() -> None:
    shared = 60_000
    n = 400
    entries = b"".join(struct.pack("<HHII", 0x9000 + i, 7, shared, 8) for i in range(n))
    pointer = struct.pack("<HHII", PHOTO, 4, 1, 26)
    tiff = b"II*\0" + struct.pack("<IH", 8, 1) + pointer + bytes(4)
    tiff += struct.pack("<H", n) + entries + bytes(4)
    tiff = tiff.ljust(shared + 8, b"\0")
    made = kept(tiff, 1, 1)
    assert made is not None
    assert len(made) <= MAX_BLOCK


@given(st.data())
def test_no_damage_to_a_block_makes_it_fail_or_gives_a_block_pillow_cannot_read(
    data: st.DataObject,
) -> None:
    damaged = bytearray(block(data.draw(st.sampled_from("<>"))))
    for _ in range(data.draw(st.integers(0, 6))):
        damaged[data.draw(st.integers(6, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(damaged[: data.draw(st.integers(0, len(damaged)))])
    for given_ in (bytes(damaged), cut):
        made = kept(given_, 10, 20)
        if made is not None:
            exif = PillowImage.Exif()
            exif.load(made)
            assert 0x0112 not in exif
            assert len(made) <= MAX_BLOCK


def test_an_entry_that_points_outside_or_claims_more_than_there_is_costs_the_others_nothing() -> (
    None
):
    good = struct.pack("<HHI4s", 0x0110, 2, 2, b"X")
    for wrong in ((0x010F, 2, 100, 1 << 20), (0x010E, 2, 0x7FFFFFFF, 0)):
        entries = struct.pack("<HHII", *wrong) + good
        made = kept(PREFIX + b"II*\0" + struct.pack("<IH", 8, 2) + entries + bytes(4), 7, 5)
        assert made is not None
        found = PillowImage.Exif()
        found.load(made)
        assert dict(found) == {0x0110: "X"}
