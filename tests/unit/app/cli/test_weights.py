"""`darkroom weights` for several networks."""

from pathlib import Path

import pytest

from app.bulk.errors import WrongUsage
from app.cli.commands import weights
from models.exit_codes import ExitCode
from models.networks.registry import BUNDLED, CATALOGUE
from models.settings import Settings


def settings(folder: Path) -> Settings:
    return Settings(cache_folder=folder)


def test_the_list_names_the_weights_of_every_network(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert weights.run(settings(tmp_path), "list", "") == ExitCode.OK
    names = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert names == [BUNDLED.name, *CATALOGUE]
    assert names[1:] == ["imagenet1k_v1", "resnet34/imagenet1k_v1", "resnet50/imagenet1k_v2"]


@pytest.mark.parametrize("name", ["resnet50", "resnet50/imagenet1k_v2"])
def test_a_network_s_name_stands_for_its_default_weights(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    assert weights.run(settings(tmp_path), "verify", name) == ExitCode.FAILED
    message = capsys.readouterr().err
    assert "no weights resnet50/imagenet1k_v2: it is not here" in message
    assert CATALOGUE["resnet50/imagenet1k_v2"].sha256 in message


def test_unknown_weights_are_refused_with_the_choices(
    tmp_path: Path,
) -> None:
    text = "no weights 'resnet51'; did you mean 'resnet50'. there are .*, resnet34, resnet50$"
    with pytest.raises(WrongUsage, match=text):
        weights.run(settings(tmp_path), "fetch", "resnet51")
