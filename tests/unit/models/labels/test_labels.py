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


def test_a_text_has_one_label_a_line_and_may_end_in_blank_lines(tmp_path: Path) -> None:
    path = written(tmp_path, "\ufeffgreat tit\r\n Mönchsgrasmücke \r\n\r\n\n")
    expected = LabelSet("birds", ("great tit", "Mönchsgrasmücke"), (None, None))
    assert read_labels(path) == expected


def test_a_json_list_of_strings_is_labels_without_wnids(tmp_path: Path) -> None:
    path = written(tmp_path, '["a", "b"]', "pair.json")
    assert read_labels(path) == LabelSet("pair", ("a", "b"), (None, None))


def test_a_json_list_of_pairs_is_wnids_and_labels(tmp_path: Path) -> None:
    path = written(tmp_path, '[["n01440764", "tench"], [null, "unheard of"]]', "pair.json")
    assert read_labels(path) == LabelSet("pair", ("tench", "unheard of"), ("n01440764", None))


def test_json_is_known_by_its_first_character_too(tmp_path: Path) -> None:
    assert read_labels(written(tmp_path, ' ["a"]')).labels == ("a",)


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


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"nowhere\.txt: No such file"):
        read_labels(tmp_path / "nowhere.txt")


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "labels.txt"
    path.write_bytes(b"\x89PNG\xff")
    with pytest.raises(ValueError, match="not UTF-8 text"):
        read_labels(path)
