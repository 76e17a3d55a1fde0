"""Statistics of inference: images of one micro-batch are one execution."""

from app.telemetry.inference_statistics import InferenceStatistics
from models.domain.job import ReleaseReason, Trace


def trace(batch: str, size: int) -> Trace:
    return Trace(0.5, 0.25, 0.0, 1.0, 0.125, size, 8, ReleaseReason.FULL, 0.0, batch)


def test_images_and_batches_are_counted() -> None:
    statistics = InferenceStatistics(lambda: 12.5)
    statistics.note("m", 2.0, [trace("a", 2), trace("a", 2), trace("b", 1), None], failed=False)
    statistics.note("m", 1.0, [], failed=True)
    found = statistics.of("m").shown("m", "1")
    assert (found["inference_count"], found["execution_count"]) == (3, 2)
    assert found["last_inference"] == 12_500
    stats = found["inference_stats"]
    assert isinstance(stats, dict)
    assert stats["success"] == {"count": 1, "ns": 2_000_000_000}
    assert stats["fail"] == {"count": 1, "ns": 1_000_000_000}
    assert stats["queue"] == {"count": 3, "ns": 1_500_000_000}
    batches = found["batch_stats"]
    assert isinstance(batches, list)
    assert [(each["batch_size"], each["compute_infer"]["count"]) for each in batches] == [
        (1, 1),
        (2, 1),
    ]
    assert statistics.of("other").shown("other", "1")["inference_count"] == 0
