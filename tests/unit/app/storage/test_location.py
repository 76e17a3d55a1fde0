import pytest

from app.storage.location import Location, parse
from models.domain.errors import InvalidParameter


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("file:///data/a.jpg", Location("file", "", ("data", "a.jpg"))),
        ("FILE://localhost/data/", Location("file", "", ("data",))),
        ("file:///data/a%20b%25.jpg", Location("file", "", ("data", "a b%.jpg"))),
        ("file:///data/%FF.jpg", Location("file", "", ("data", "\udcff.jpg"))),
        ("s3://bucket/photos/a%20b?#.jpg", Location("s3", "bucket", ("photos", "a%20b?#.jpg"))),
        ("gs://my-bucket", Location("gs", "my-bucket", ())),
        ("az://container/ü/", Location("az", "container", ("ü",))),
    ],
)
def test_an_address_is_read_by_the_rules_of_its_scheme(text: str, expected: Location) -> None:
    assert parse(text) == expected
    assert parse(str(expected)) == expected


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("ftp://host/a", "begin it with one of file://, s3://"),
        ("/data/a.jpg", "begin it with"),
        ("file://host/a", "has no host"),
        ("file:///data/../etc/passwd", "not allowed"),
        ("file:///data/%2e%2e/etc/passwd", "not allowed"),
        ("file:///data%2F..%2Fetc/passwd", "not allowed"),
        ("file:///data//a", "empty parts"),
        ("file:///data/a%00b", "control characters"),
        ("file:///data/a?x=1", "%3F"),
        ("file:///data/\ud800", "no file name"),
        ("file:///" + "a" * 5000, "more than 4096 bytes"),
        ("s3://bucket/../other/a", "not allowed"),
        ("s3://bucket//a", "empty parts"),
        ("s3://bucket/a\nb", "control characters"),
        ("s3://bucket/\ud800", "UTF-8"),
        ("s3:///a", "name of the bucket"),
        ("s3://user:password@host/a", "name of the bucket"),
        ("s3://UPPER/a", "name of the bucket"),
    ],
)
def test_what_could_lead_elsewhere_is_refused(text: str, why: str) -> None:
    with pytest.raises(InvalidParameter) as error:
        parse(text)
    assert why in error.value.detail


@pytest.mark.parametrize(
    ("text", "inside"),
    [
        ("s3://bucket/photos/a.jpg", True),
        ("s3://bucket/photos", True),
        ("s3://bucket/photos2/a.jpg", False),
        ("s3://bucket2/photos/a.jpg", False),
        ("gs://bucket/photos/a.jpg", False),
    ],
)
def test_a_prefix_ends_between_parts(text: str, inside: bool) -> None:
    assert parse(text).within(parse("s3://bucket/photos/")) == inside


def test_names_below_a_location_cannot_leave_it() -> None:
    folder = parse("s3://bucket/results")
    assert str(folder.below("0/a b.png")) == "s3://bucket/results/0/a b.png"
    with pytest.raises(InvalidParameter):
        folder.below("../a.png")
