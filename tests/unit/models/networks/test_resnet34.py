"""The specification of ResNet34 against torchvision's."""

from torchvision.models import ResNet34_Weights

from models.networks.resnet34 import RESNET34
from tests.unit.models.networks.published import assert_published


def test_the_default_weights_of_resnet34_are_those_that_torchvision_publishes() -> None:
    assert_published(RESNET34, ResNet34_Weights)
