"""The specification of ResNet18 against torchvision's."""

from torchvision.models import ResNet18_Weights

from models.networks.resnet18 import RESNET18
from tests.unit.models.networks.published import assert_published


def test_the_default_weights_of_resnet18_are_those_that_torchvision_publishes() -> None:
    assert_published(RESNET18, ResNet18_Weights)
