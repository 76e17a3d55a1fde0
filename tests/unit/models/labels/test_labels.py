from pathlib import Path

import pytest

from models.labels import LabelSet, read_labels, shipped


def written(folder: Path, text: str, name: str = "birds.txt") -> Path:
    path = folder / name
    path.write_text(text, "utf-8")
    return path


def test_imagenet_has_torchvision_s_labels_in_torchvision_s_order() -> None:
    from torchvision.models import ResNet18_Weights

    assert list(shipped("imagenet1k").labels) == ResNet18_Weights.IMAGENET1K_V1.meta["categories"]


def test_imagenet_s_wnids_are_a_thousand_different_ones_in_ascending_order() -> None:
    wnids = [wnid or "" for wnid in shipped("imagenet1k").wnids]
    assert len(wnids) == 1000
    assert wnids == sorted(set(wnids))
    assert shipped("imagenet1k").wnids[281] == "n02123045"


def test_imagenette_s_classes_are_ten_of_imagenet_s_under_the_same_names() -> None:
    imagenet, ten = shipped("imagenet1k"), shipped("imagenette10")
    names = dict(zip(imagenet.wnids, imagenet.labels, strict=True))
    assert len(ten.labels) == 10
    assert list(ten.wnids) == sorted(ten.wnids, key=str)
    assert [names[wnid] for wnid in ten.wnids] == list(ten.labels)


@pytest.mark.parametrize(
    ("name", "text", "labels", "wnids"),
    [
        ("a.txt", "\ufeffgreat tit\r\n Möwe \r\n\r\n\n", ("great tit", "Möwe"), (None, None)),
        ("a.json", '["a", "b"]', ("a", "b"), (None, None)),
        ("a.json", '[["n0144", "tench"], [null, "new"]]', ("tench", "new"), ("n0144", None)),
        ("a.txt", ' ["a"]', ("a",), (None,)),
    ],
    ids=["lines", "strings", "pairs with wnids", "json by its first character"],
)
def test_labels_are_read_from_lines_and_from_json(
    name: str, text: str, labels: tuple[str, ...], wnids: tuple[str | None, ...], tmp_path: Path
) -> None:
    assert read_labels(written(tmp_path, text, name)) == LabelSet("a", labels, wnids)


def test_anything_else_is_refused_with_what_is_wrong_and_what_is_right(tmp_path: Path) -> None:
    for name, text, problem in [
        ("a.json", '{"0": "tench"}', "not a list"),
        ("a.json", "[]", "there are none"),
        ("a.json", '["a", ["n1", "b"]]', "some entries are strings and some are not"),
        ("a.json", '["a", " "]', 'entry 1 is " "'),
        ("a.json", '[["n1", "a"], ["n2"]]', r'entry 1 is \["n2"\]'),
        ("a.json", "[1, 2]", "entry 0 is 1"),
        ("a.json", '["a"', "Expecting"),
        ("a.txt", "", "there are none"),
        ("a.txt", "\n \n", "there are none"),
        ("a.txt", "one\n\nthree\n", "line 2 is blank"),
    ]:
        with pytest.raises(ValueError, match=problem) as refused:
            read_labels(written(tmp_path, text, name))
        assert "text with one label a line, in class order" in str(refused.value)
    (tmp_path / "binary.txt").write_bytes(b"\x89PNG\xff")
    for name, problem in [("nowhere.txt", "No such file"), ("binary.txt", "not UTF-8 text")]:
        with pytest.raises(ValueError, match=f"{name}.*{problem}"):
            read_labels(tmp_path / name)
