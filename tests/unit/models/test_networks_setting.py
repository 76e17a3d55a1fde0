"""`DARKROOM_NETWORKS`, and weights for each network."""

import pytest

from models.networks.registry import BUNDLED, RESNET18, RESNET34, RESNET50
from models.settings import Settings
from models.weights.sources import Auto, LocalFile, Published, Random, resolve_all, served_specs


def of(**settings: str) -> Settings:
    return Settings.model_validate(settings)


def test_resnet18_is_the_only_network_if_nothing_is_set() -> None:
    assert served_specs(Settings()) == [RESNET18]


def test_the_networks_are_served_in_the_order_of_the_setting() -> None:
    assert served_specs(of(networks="resnet50, resnet18")) == [RESNET50, RESNET18]


@pytest.mark.parametrize("names", ["resnet51", "resnet18,resnet18", ""])
def test_a_wrong_list_of_networks_is_refused_with_the_choices(names: str) -> None:
    with pytest.raises(ValueError, match="there are resnet18, resnet34, resnet50"):
        of(networks=names)


def test_one_value_of_weights_is_for_every_network() -> None:
    found = resolve_all(of(networks="resnet18,resnet34", weights="random:7"))
    assert found == {"resnet18": Random(7), "resnet34": Random(7)}


def test_auto_falls_back_only_where_weights_are_bundled() -> None:
    found = resolve_all(of(networks="resnet18,resnet34"))
    assert found["resnet18"] == Auto(Published(RESNET18.weights[0]), BUNDLED)
    assert found["resnet34"] == Published(RESNET34.weights[0])


def test_networks_may_have_weights_of_their_own() -> None:
    digest = "a" * 64
    settings = of(
        networks="resnet18,resnet34,resnet50",
        weights="resnet18=bundled,resnet50=own.pth",
        weights_labels="resnet50=labels.txt",
        weights_sha256=f"resnet50={digest}",
    )
    found = resolve_all(settings)
    assert found["resnet18"] is BUNDLED
    assert found["resnet34"] == Published(RESNET34.weights[0])
    assert isinstance(found["resnet50"], LocalFile)
    assert (str(found["resnet50"].path), found["resnet50"].sha256) == ("own.pth", digest)
    assert str(found["resnet50"].labels_path) == "labels.txt"


def test_weights_of_another_network_are_refused_with_the_choices() -> None:
    choices = r"no weights 'bundled' of resnet50: there are auto, imagenet1k_v2, random"
    with pytest.raises(ValueError, match=choices):
        resolve_all(of(networks="resnet18,resnet50", weights="bundled"))


def test_weights_for_a_network_that_is_not_served_are_refused() -> None:
    with pytest.raises(ValueError, match=r"'resnet50', but the networks are resnet18"):
        resolve_all(of(weights="resnet50=random"))
