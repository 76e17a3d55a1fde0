"""The names of results below a folder."""

from app.bulk.outputs.folder import Places
from models.codec import ImageFormat


def targets(*places: str, format_: ImageFormat | None = None, one_folder: bool = True) -> list[str]:
    chosen = Places(format_, one_folder=one_folder)
    return [chosen.target(place) for place in places]


def test_folders_are_mirrored_and_suffixes_follow_the_format() -> None:
    assert targets("a.jpg", "in/deep/b.png") == ["a.jpg", "in/deep/b.png"]
    assert targets("a.jpeg", "b.gif", "c.bmp") == ["a.jpg", "b.png", "c.png"]
    assert targets("a.jpg", "in/b.png", format_=ImageFormat.WEBP) == ["a.webp", "in/b.webp"]


def test_images_with_the_same_result_get_different_names() -> None:
    found = targets("a.jpg", "a.png", "in/a.png", format_=ImageFormat.WEBP)
    assert found == ["a.webp", "a.png.webp", "in/a.webp"]


def test_the_same_image_twice_is_numbered() -> None:
    found = targets("a.jpg", "b.jpg", "a.jpg", "a.jpg", "a.jpg", one_folder=False)
    assert found == ["a.jpg", "b.jpg", "a.jpg.jpg", "a.jpg.2.jpg", "a.jpg.3.jpg"]


def test_folders_that_do_not_come_together_are_remembered() -> None:
    found = targets("in/a.jpg", "b.jpg", "in/a.jpg", one_folder=False)
    assert found == ["in/a.jpg", "b.jpg", "in/a.jpg.jpg"]
