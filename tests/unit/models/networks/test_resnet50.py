"""The specification of ResNet50 against torchvision's."""

from torchvision.models import ResNet50_Weights

from models.networks.resnet50 import RESNET50
from tests.unit.models.networks.published import assert_published


def test_the_default_weights_of_resnet50_are_those_that_torchvision_publishes() -> None:
    assert_published(RESNET50, ResNet50_Weights)
