"""The manifests for Kubernetes agree with the server, the image and each other.

Most tests read the files as they are. Where kustomize or kubectl is installed, the overlays are
built and checked as a whole.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.routes import health
from models.settings import PREFIX, Settings
from tests.unit.test_monitoring import given

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docker/kubernetes"
OVERLAYS = sorted(path.name for path in (FOLDER / "overlays").iterdir())
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


def values(node: Any, key: str) -> Iterator[Any]:
    """Yield every value that a document has under this key, at any depth."""
    if isinstance(node, dict):
        for name, value in node.items():
            if name == key:
                yield value
            yield from values(value, key)
    elif isinstance(node, list):
        for each in node:
            yield from values(each, key)


def test_probes_ask_for_paths_that_the_server_answers() -> None:
    paths = {getattr(route, "path", "") for route in health.router.routes}
    asked = {name: container()[name]["httpGet"]["path"] for name in PROBES}
    assert asked == PROBES
    assert set(asked.values()) <= paths


def test_ports_are_those_that_the_server_listens_on() -> None:
    ports = {port["name"]: port["containerPort"] for port in container()["ports"]}
    assert ports == {
        "http": Settings.model_fields["port"].default,
        "metrics": int(settings()["DARKROOM_METRICS_PORT"]),
    }
    named = {container()[name]["httpGet"]["port"] for name in PROBES}
    named |= {port["targetPort"] for port in read("base/service.yaml")["spec"]["ports"]}
    monitor = read("components/autoscaling/podmonitor.yaml")["spec"]["podMetricsEndpoints"]
    named |= {each["port"] for each in monitor}
    (allowed,) = values(read("base/networkpolicy.yaml"), "ingress")
    named |= {port["port"] for rule in allowed for port in rule["ports"]}
    assert named == set(ports)


def test_every_variable_is_a_setting() -> None:
    variables = set(settings())
    files = ["overlays/gpu/resources.yaml", "components/api-keys/keys.yaml"]
    files.append("components/jobs/data.yaml")
    for each in (container(), *map(patched, files)):
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


def test_a_pod_may_not_write_its_root_and_is_not_root() -> None:
    user = pod()["securityContext"]
    image = (ROOT / "Dockerfile").read_text()
    assert f"USER {user['runAsUser']}:{user['runAsGroup']}\n" in image
    assert user["runAsNonRoot"] is True
    assert user["fsGroup"] == user["runAsGroup"]
    assert container()["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    mounted = {each["name"]: each["mountPath"] for each in container()["volumeMounts"]}
    assert mounted == {"tmp": "/tmp", "cache": "/var/cache/darkroom"}
    assert {each["name"] for each in pod()["volumes"]} == set(mounted)


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


def test_threads_and_front_ends_fit_the_cores_that_a_pod_asks_for() -> None:
    container_of_gpu = patched("overlays/gpu/resources.yaml")
    (front_ends,) = (
        int(each["value"])
        for each in container_of_gpu["env"]
        if each["name"] == "DARKROOM_FRONT_ENDS"
    )
    assert front_ends < int(container_of_gpu["resources"]["requests"]["cpu"])
    counted = {each["name"]: each["valueFrom"]["resourceFieldRef"] for each in container()["env"]}
    assert counted.keys() == {"DARKROOM_THREADS", "DARKROOM_DECODERS"}
    assert {each["resource"] for each in counted.values()} == {"requests.cpu"}
    for overlay in OVERLAYS:
        requests = patched(f"overlays/{overlay}/resources.yaml")["resources"]["requests"]
        assert int(requests["cpu"]) > 0


def test_the_data_folder_of_jobs_is_a_claim_of_one_pod() -> None:
    deployment, claim = (
        read(f"components/jobs/{name}.yaml") for name in ("data", "persistentvolumeclaim")
    )
    found = patched("components/jobs/data.yaml")
    (folder,) = [each["value"] for each in found["env"] if each["name"] == f"{PREFIX}DATA_FOLDER"]
    (mount,) = found["volumeMounts"]
    (volume,) = deployment["spec"]["template"]["spec"]["volumes"]
    assert mount == {"name": volume["name"], "mountPath": folder}
    assert volume["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    assert (deployment["spec"]["replicas"], claim["spec"]["accessModes"]) == (1, ["ReadWriteOnce"])
    # A rolling update would never end: the new pod needs the volume that the old one has.
    assert deployment["spec"]["strategy"] == {"type": "Recreate", "rollingUpdate": None}
    size = int(claim["spec"]["resources"]["requests"]["storage"].removesuffix("Gi"))
    assert size << 30 > Settings.model_fields["max_data_bytes"].default
    assert str(folder) in (ROOT / "Dockerfile").read_text(), "the image has it for its user"
