"""Which colour profiles are certain to cost little."""

import struct
import warnings

import pytest
from PIL import Image, ImageCms

from app.decoders import EXPENSIVE
from models.codec import open_file, open_plain
from models.codec.colour import MAX_BYTES, MAX_TAGS, is_matrix_profile
from tests.chaos.hostile.profiles import of_stages
from tests.pictures import drawing
from tests.pictures import encoded as file_of
from tests.shared import ODD, PHOTOS

LIMIT = 10_000_000
SRGB = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
LATE = (b"A2B0", b"A2B1", b"B2A0", b"D2B0", b"D2B1", b"B2D0", b"gamt", b"ncl2", b"clrt", b"pseq")


def changed(at: int, new: bytes, profile: bytes = SRGB) -> bytes:
    return profile[:at] + new + profile[at + len(new) :]


def entry(name: bytes) -> int:
    """Return the place of a tag in the table of sRGB."""
    return SRGB.index(name, 128)


def test_a_matrix_with_curves_is_certain_to_be_cheap() -> None:
    assert is_matrix_profile(SRGB)


@pytest.mark.parametrize("name", LATE)
def test_a_tag_of_tables_or_stages_is_a_doubt(name: bytes) -> None:
    assert not is_matrix_profile(changed(entry(b"cprt"), name))


@pytest.mark.parametrize(
    "profile",
    [
        b"",
        SRGB[:128],
        SRGB[:200],
        SRGB[:-1],
        SRGB + bytes(MAX_BYTES),
        of_stages(),
        changed(12, b"link"),
        changed(12, b"nmcl"),
        changed(16, b"CMYK"),
        changed(20, b"Lab "),
        changed(128, struct.pack(">I", MAX_TAGS + 1)),
        changed(128, struct.pack(">I", (1 << 32) - 1)),
        changed(entry(b"rXYZ"), b"wtpt"),
        changed(entry(b"cprt"), b"rXYZ"),
        changed(entry(b"rTRC") + 4, struct.pack(">II", (1 << 32) - 1, (1 << 32) - 1)),
    ],
)
def test_whatever_else_is_a_doubt(profile: bytes) -> None:
    assert not is_matrix_profile(profile)


@pytest.mark.parametrize("profile", [changed(entry(b"cprt"), b"A2B0"), of_stages(), bytes(200)])
def test_a_jpeg_with_a_doubtful_profile_is_not_opened_on_a_thread(profile: bytes) -> None:
    data = file_of(drawing(40, 30), icc_profile=profile)
    assert open_plain(data, max_pixels=LIMIT) is None


def test_an_image_with_a_profile_of_stages_counts_as_expensive() -> None:
    for profile, expensive in (
        (of_stages(), True),
        (SRGB, False),
        (bytes(200), False),
        (b"", False),
    ):
        data = file_of(drawing(40, 30), icc_profile=profile)
        assert (open_file(data, max_pixels=LIMIT).cost >= EXPENSIVE) is expensive


@pytest.mark.skipif(not PHOTOS.exists(), reason=f"{PHOTOS} is not there")
def test_the_profiles_of_photos_are_certain_to_be_cheap() -> None:
    profiles = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Pillow about broken metadata
        for path in [*PHOTOS.iterdir(), ODD / "libvips__5.jpg"]:
            with Image.open(path) as image:
                profiles.append(image.info.get("icc_profile"))
    found = [is_matrix_profile(each) for each in profiles if each]
    assert len(found) > 20
    assert all(found)
