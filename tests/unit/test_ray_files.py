"""The files of docker/ray agree with Ray's schema, with the code and with each other."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from app.cluster import FULL_BATCHES, ONE_LOOP
from models.settings import Settings
from tests.ray_cluster import import_ray
from workers.supervision.startup import CPU_BATCH, GPU_BATCH

FOLDER = Path(__file__).parents[2] / "docker/ray"


def serve_config() -> dict[str, Any]:
    """Return the configuration for `serve run`."""
    found: dict[str, Any] = yaml.safe_load((FOLDER / "serve.yaml").read_text())
    return found


def ray_service() -> dict[str, Any]:
    """Return the specification of the RayService."""
    found: dict[str, Any] = yaml.safe_load((FOLDER / "rayservice.yaml").read_text())["spec"]
    return found


def configurations() -> list[dict[str, Any]]:
    """Return the configuration of Serve in each file."""
    return [serve_config(), yaml.safe_load(ray_service()["serveConfigV2"])]


def deployments(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the deployments of a configuration by their names."""
    return {each["name"]: each for each in found["applications"][0]["deployments"]}


@pytest.mark.parametrize("number", [0, 1])
def test_ray_accepts_the_configuration(number: int) -> None:
    import_ray()
    from ray.serve.schema import ServeDeploySchema

    found = ServeDeploySchema.model_validate(configurations()[number])
    (application,) = found.applications
    assert application.import_path == "darkroom.cluster:build"
    assert {each.name for each in application.deployments} == {"front_ends", "workers"}


def test_replicas_have_one_event_loop_where_the_options_of_the_code_are_overridden() -> None:
    for number in [0, 1]:
        (application,) = configurations()[number]["applications"]
        assert application["runtime_env"] == {"env_vars": ONE_LOOP}
        import_ray()
        from ray.serve._private import constants

        source = Path(constants.__file__).read_text()
        assert all(f'"{each}"' in source for each in ONE_LOOP)


def test_ray_waits_longer_than_the_longest_deadline() -> None:
    for number in [0, 1]:
        most = Settings.model_fields["max_deadline"].default
        assert configurations()[number]["http_options"]["request_timeout_s"] > most


def test_a_replica_has_four_batches_of_images_and_is_full_at_two() -> None:
    for number, batch in [(0, CPU_BATCH), (1, GPU_BATCH)]:
        workers = deployments(configurations()[number])["workers"]
        assert workers["max_ongoing_requests"] == FULL_BATCHES * batch
        assert workers["autoscaling_config"]["target_ongoing_requests"] == 2 * batch


def test_a_replica_fits_into_a_pod_of_its_group() -> None:
    found = deployments(configurations()[1])
    (_, front_ends), (_, gpus) = sorted(
        (each["groupName"], each) for each in ray_service()["rayClusterConfig"]["workerGroupSpecs"]
    )
    for group, deployment in ((front_ends, found["front_ends"]), (gpus, found["workers"])):
        (container,) = group["template"]["spec"]["containers"]
        requests, wanted = container["resources"]["requests"], deployment["ray_actor_options"]
        assert int(requests["cpu"]) >= wanted["num_cpus"]
        assert int(requests.get("nvidia.com/gpu", 0)) == wanted.get("num_gpus", 0)
        assert group["maxReplicas"] >= deployment["autoscaling_config"]["max_replicas"]
