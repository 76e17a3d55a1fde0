"""Names of images in archives: those of their sources, safe, and all different."""

import pytest

from app.archives.image_names import ImageNames


@pytest.mark.parametrize(
    ("source", "id_", "name"),
    [
        ("cat.jpg", None, "cat"),
        ("photos/of today/cat.jpeg", "a", "cat"),
        ("C:\\photos\\cat.PNG", None, "cat"),
        ("https://example.org/photos/caf%C3%A9.jpg?width=5.5#top", None, "café"),
        ("s3://bucket/photos/cat.v2.tiff", None, "cat.v2"),
        ("gs://bucket/50%20#1.jpg", None, "50%20#1"),
        ("file:///data/a%23b.jpg", None, "a#b"),
        ("https://example.org/", "mine", "mine"),
        ("https://example.org/%2e%2e%2fa%00b.jpg", None, "a_b"),
        ("https://[/cat.jpg", None, "0007"),
        (None, "my id", "my id"),
        (None, "../../etc/passwd", "_.._etc_passwd"),
        (None, None, "0007"),
        ("../../etc/passwd", None, "passwd"),
        ("..", None, "0007"),
        ("/", "/", "_"),
        (".hidden.jpg", None, "hidden"),
        ("nul.jpg", None, "_nul"),
        ("a\n\x1b[31m\u202eb.jpg", None, "a__[31m_b"),
        ("\ud800.jpg", None, "_"),
        ("ä" * 500 + ".jpg", None, "ä" * 80),
    ],
)
def test_a_name_is_that_of_the_source(source: str | None, id_: str | None, name: str) -> None:
    assert ImageNames().next(7, source, id_) == name


def test_repeated_names_have_the_number_of_their_image_however_they_are_written() -> None:
    names = ImageNames()
    sources = ["cat.jpg", "old/Cat.png", "cat-3.gif", "x/cat.webp", "dog.jpg", "cat.jpg"]
    found = [names.next(index, source, None) for index, source in enumerate(sources)]
    assert found == ["cat", "Cat-1", "cat-3", "cat-3-3", "dog", "cat-5"]
