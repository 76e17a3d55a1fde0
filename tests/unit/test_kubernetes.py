"""The manifests for Kubernetes agree with the server and the image."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.routes import health
from models.settings import PREFIX, Settings
from tests.unit.test_monitoring import given

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docker/kubernetes"
JOBS = "components/jobs/data.yaml"
PROBES = {"startupProbe": "/startupz", "readinessProbe": "/readyz", "livenessProbe": "/livez"}


def read(name: str) -> dict[str, Any]:
    """Return the document of a file."""
    loaded: dict[str, Any] = yaml.safe_load((FOLDER / name).read_text())
    return loaded


def pod() -> dict[str, Any]:
    """Return the specification of the pods, without the patches of an overlay."""
    found: dict[str, Any] = read("base/deployment.yaml")["spec"]["template"]["spec"]
    return found


def container() -> dict[str, Any]:
    (found,) = pod()["containers"]
    return dict(found)


def settings() -> dict[str, str]:
    """Return the settings that all pods have."""
    lines = (FOLDER / "base/settings.env").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def patched(name: str) -> dict[str, Any]:
    """Return the container of a patch."""
    (found,) = read(name)["spec"]["template"]["spec"]["containers"]
    return dict(found)


def test_probes_and_ports_are_those_of_the_server() -> None:
    paths = {getattr(route, "path", "") for route in health.router.routes}
    asked = {name: container()[name]["httpGet"]["path"] for name in PROBES}
    assert asked == PROBES
    assert set(asked.values()) <= paths
    ports = {port["name"]: port["containerPort"] for port in container()["ports"]}
    assert ports == {
        "http": Settings.model_fields["port"].default,
        "metrics": int(settings()["DARKROOM_METRICS_PORT"]),
    }
    files = (each.read_text() for each in FOLDER.rglob("*.yaml"))
    assert {name for text in files for name in re.findall(r"[pP]ort: ([a-z]+)", text)} == set(ports)


def test_a_pod_may_not_write_its_root_and_is_the_user_of_the_image() -> None:
    user = pod()["securityContext"]
    assert f"USER {user['runAsUser']}:{user['runAsGroup']}\n" in (ROOT / "Dockerfile").read_text()
    assert user["runAsNonRoot"] is True
    assert user["fsGroup"] == user["runAsGroup"], "it may write to volumes"
    assert container()["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    mounted = {each["name"]: each["mountPath"] for each in container()["volumeMounts"]}
    assert mounted == {"tmp": "/tmp", "cache": "/var/cache/darkroom"}
    assert {each["name"] for each in pod()["volumes"]} == set(mounted)


@pytest.mark.parametrize("overlay", ["cpu", "gpu"])
def test_front_ends_leave_a_core_of_those_that_a_pod_asks_for(overlay: str) -> None:
    found = patched(f"overlays/{overlay}/resources.yaml")
    front_ends = [int(each["value"]) for each in found.get("env", ())]
    assert int(found["resources"]["requests"]["cpu"]) > sum(front_ends)


def test_one_pod_at_a_time_keeps_jobs_on_its_claim() -> None:
    claim, found = read("components/jobs/persistentvolumeclaim.yaml"), patched(JOBS)
    spec = read(JOBS)["spec"]
    (folder,), (mount,) = ([each["value"] for each in found["env"]], found["volumeMounts"])
    (volume,) = spec["template"]["spec"]["volumes"]
    assert mount == {"name": volume["name"], "mountPath": folder}
    assert volume["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    # A rolling update would never end: the new pod needs the volume that the old pod has.
    assert (spec["replicas"], spec["strategy"]["type"]) == (1, "Recreate")
    size = int(claim["spec"]["resources"]["requests"]["storage"].removesuffix("Gi"))
    assert size << 30 > Settings.model_fields["max_data_bytes"].default


def test_every_variable_is_a_setting() -> None:
    variables = set(settings())
    files = ["overlays/gpu/resources.yaml", "components/api-keys/keys.yaml"]
    for each in (container(), *map(patched, [*files, JOBS])):
        variables |= {variable["name"] for variable in each["env"]}
    assert all(name.startswith(PREFIX) for name in variables)
    assert {name.removeprefix(PREFIX).lower() for name in variables} <= set(Settings.model_fields)


def test_the_settings_of_all_pods_are_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in settings().items():
        monkeypatch.setenv(name, value)
    assert Settings().metrics_port == 9100


def test_a_pod_is_given_the_time_to_finish_accepted_work() -> None:
    needed = float(settings()["DARKROOM_GRACE"]) + float(settings()["DARKROOM_DRAIN_TIMEOUT"])
    assert pod()["terminationGracePeriodSeconds"] > needed
    probe = container()["readinessProbe"]
    assert probe["periodSeconds"] < float(settings()["DARKROOM_GRACE"])


def test_pods_scale_by_a_metric_that_the_server_gives_and_the_adapter_offers() -> None:
    scaler = read("components/autoscaling/horizontalpodautoscaler.yaml")
    (offered,) = read("prometheus-adapter.yaml")["rules"]["custom"]
    (series,) = re.findall(r'__name__="(\w+)"', offered["seriesQuery"])
    scaled = {
        metric["pods"]["metric"]["name"]
        for each in (scaler, read("components/autoscaling-gpu/horizontalpodautoscaler.yaml"))
        for metric in each["spec"]["metrics"]
    }
    assert scaled == {series}
    assert series in given()
