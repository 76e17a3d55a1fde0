import pytest

from app.archives.reading import LONGEST_NAME, is_hidden, safe_name


@pytest.mark.parametrize(
    ("given", "safe"),
    [
        ("a/b.jpg", "a/b.jpg"),
        ("/etc/passwd", "etc/passwd"),
        ("../../etc/passwd", "etc/passwd"),
        ("a/../../b", "a/b"),
        ("./a//b", "a/b"),
        ("C:\\photos\\a.jpg", "photos/a.jpg"),
        ("./C:/photos/a.jpg", "photos/a.jpg"),
        ("..\\C:\\a.jpg", "a.jpg"),
        ("C:D:a.jpg", "a.jpg"),
        ("C:../D:./a.jpg", "a.jpg"),
        ("C:", "unnamed"),
        ("C:..", "unnamed"),
        ("a/C:/b.jpg", "a/C:/b.jpg"),
        ("..\\..\\a.jpg", "a.jpg"),
        ("a\0b\n.jpg", "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}.jpg"),
        ("..", "unnamed"),
        ("", "unnamed"),
        ("\ud800.jpg", "\N{REPLACEMENT CHARACTER}.jpg"),
    ],
)
def test_a_name_becomes_a_relative_path_without_parents(given: str, safe: str) -> None:
    assert safe_name(given) == safe


def test_a_long_name_keeps_its_end() -> None:
    name = safe_name("x/" * 5000 + "a.jpg")
    assert len(name) <= LONGEST_NAME
    assert name.endswith("/a.jpg")
    assert not name.startswith("/")


@pytest.mark.parametrize("name", [".a", "x/.git/a", "__MACOSX/a", "x/__MACOSX/a"])
def test_files_of_operating_systems_are_hidden(name: str) -> None:
    assert is_hidden(name)
    assert not is_hidden("a.b/c")


def test_what_is_cut_off_leaves_no_way_out_of_the_folder() -> None:
    rest = "y/" * ((LONGEST_NAME - 3) // 2) + "a"
    for first in ("x..", "x.", "..x..", "x./..", "xC:", "xC:D:"):
        for more in range(4):
            name = safe_name(f"{first}/{'z' * more}{rest}")
            assert not {"", ".", ".."} & {*name.split("/")}
            assert name[1] != ":"
