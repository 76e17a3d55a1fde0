"""What torchvision publishes for a network, compared with its specification."""

from typing import Any

from models.networks.spec import NetworkSpec

MIB = 1 << 20


def assert_published(spec: NetworkSpec, weights: Any) -> None:
    """Check that the default weights are torchvision's: the file, its size, the transform and the
    classes.
    """
    default, theirs = spec.weights[0], weights.DEFAULT
    assert default.network == spec.name
    assert default.name == theirs.name.lower()
    assert default.url == theirs.url
    assert default.url.endswith(f"/{default.filename}")
    assert default.filename == f"{spec.name}-{default.sha256[:8]}.pth"
    assert len(default.sha256) == 64
    assert abs(default.size / MIB - theirs.meta["_file_size"]) < 0.001
    ours, transform = spec.preprocessing, theirs.transforms()
    assert [ours.resize] == transform.resize_size
    assert [ours.crop] == transform.crop_size
    assert [*ours.mean] == transform.mean
    assert [*ours.std] == transform.std
    assert transform.interpolation.value == "bilinear"
