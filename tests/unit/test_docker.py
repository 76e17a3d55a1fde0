"""The Docker files agree with the code, the lock files and the tools' own rules, without Docker."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from clients.python.tests.scripted import page, scripted
from models.settings import PREFIX, Settings

ROOT = Path(__file__).parents[2]
COMPOSE_FILE = ROOT / "docker-compose.yml"
HEALTHCHECK = ROOT / "docker" / "healthcheck.py"


def instructions() -> list[tuple[str, str]]:
    """Return the Dockerfile as (keyword, arguments): continued lines joined, comments dropped, and
    `${WEIGHTS}` replaced by its default.
    """
    text = (ROOT / "Dockerfile").read_text()
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    (weights,) = re.findall(r"^ARG WEIGHTS=(\S+)$", joined, re.MULTILINE)
    joined = joined.replace("${WEIGHTS}", weights)
    return [
        (keyword, rest)
        for keyword, _, rest in (line.partition(" ") for line in joined.splitlines())
        if keyword
    ]


def arguments(keyword: str) -> list[str]:
    return [rest for name, rest in instructions() if name == keyword]


def image_environment() -> dict[str, str]:
    words = " ".join(arguments("ENV")).split()
    return dict(word.split("=", 1) for word in words)


def context_sources() -> set[str]:
    """Return the paths of the build context that the Dockerfile copies or mounts."""
    copied = (rest.split() for rest in arguments("COPY") if "--from=" not in rest)
    sources = {word for words in copied for word in words[:-1] if not word.startswith("--")}
    for rest in arguments("RUN"):
        for mount in re.findall(r"--mount=type=bind,(\S+)", rest):
            options = dict(option.split("=", 1) for option in mount.split(","))
            if "from" not in options:
                sources.add(options["source"])
    return sources


def services(*, built: bool = True) -> dict[str, Any]:
    """Return the services that run Darkroom, which are built here, or those beside them."""
    loaded: dict[str, Any] = yaml.safe_load(COMPOSE_FILE.read_text())["services"]
    return {name: each for name, each in loaded.items() if ("build" in each) is built}


def test_hadolint_has_nothing_to_say_about_the_dockerfile() -> None:
    hadolint = Path(sys.executable).with_name("hadolint")
    if not hadolint.exists():
        pytest.skip("hadolint has no wheel for this platform")
    found = subprocess.run([hadolint, ROOT / "Dockerfile"], capture_output=True, text=True)
    assert (found.returncode, found.stdout) == (0, "")


def test_plain_up_starts_one_service_on_every_gpu() -> None:
    (started,) = (each for each in services().values() if "profiles" not in each)
    every = [{"driver": "nvidia", "count": "all", "capabilities": ["gpu"]}]
    assert started["deploy"]["resources"]["reservations"]["devices"] == every
    assert started["build"]["target"] == "gpu"
    assert ("RUN", '["darkroom", "kernels"]') in instructions()


def test_jobs_and_what_is_compiled_lie_in_volumes_that_the_user_of_the_image_owns() -> None:
    cache = f"{image_environment()['XDG_CACHE_HOME']}/darkroom"
    user, group = arguments("USER")[0].split(":")
    made = f"install --directory --owner={user} --group={group}"
    for service in services().values():
        data = service["environment"]["DARKROOM_DATA_FOLDER"]
        assert service["volumes"] == [f"cache:{cache}", f"data:{data}"]
        (commands,) = (rest for rest in arguments("RUN") if "useradd" in rest)
        assert f"{made} {cache} " in commands
        assert commands.endswith(f"{made} --mode=700 {data}")


def test_the_settings_file_of_compose_names_only_settings() -> None:
    for service in services().values():
        (file,) = (re.sub(r"\$\{\w+:-(.*)\}", r"\1", each) for each in service["env_file"])
        lines = [line.lstrip("# ") for line in (ROOT / file).read_text().splitlines()]
        named = {line.partition("=")[0] for line in lines if re.match(r"[A-Z_]+=", line)}
        assert named
        assert {name.removeprefix(PREFIX).lower() for name in named} <= set(Settings.model_fields)


def test_monitors_start_only_when_asked_for_and_are_reached_from_this_machine_only() -> None:
    beside = services(built=False)
    assert beside
    for each in beside.values():
        assert each["profiles"] in (["monitoring"], ["edge"])
        assert all(port.startswith("127.0.0.1:") for port in each["ports"])
        files = [volume.split(":")[0] for volume in each["volumes"] if volume.startswith("./")]
        assert files
        assert all((ROOT / file).exists() for file in files)


def test_the_base_image_is_pinned_to_one_release_of_one_debian_by_its_digest() -> None:
    (default,) = [rest for rest in arguments("ARG") if rest.startswith("PYTHON_IMAGE=")]
    assert re.fullmatch(r"PYTHON_IMAGE=python:3\.\d+\.\d+-slim-[a-z]+@sha256:[0-9a-f]{64}", default)


def test_the_port_is_the_same_wherever_it_is_named() -> None:
    port = image_environment()["DARKROOM_PORT"]
    assert arguments("EXPOSE") == [port]
    for service in services().values():
        assert service["environment"]["DARKROOM_PORT"] == port
        assert [mapping.rpartition(":")[2] for mapping in service["ports"]] == [port]


def test_a_container_is_given_the_time_to_finish_accepted_work() -> None:
    defaults = Settings.model_fields
    needed = defaults["grace"].default + defaults["drain_timeout"].default
    for service in services().values():
        assert int(service["stop_grace_period"].removesuffix("s")) > needed


def test_the_baked_weights_are_the_published_ones_in_the_place_they_are_looked_for() -> None:
    from models.networks.registry import CATALOGUE

    published = CATALOGUE[image_environment()["DARKROOM_WEIGHTS"]]
    (added,) = arguments("ADD")
    assert added.split() == [f"--checksum=sha256:{published.sha256}", published.url, "/"]
    (checked,) = [rest for rest in arguments("RUN") if "sha256sum" in rest]
    assert f'echo "{published.sha256}  {published.filename}"' in checked
    assert f"/mnt/{published.filename} ." in checked


def test_everything_copied_into_the_build_exists() -> None:
    assert [source for source in sorted(context_sources()) if not (ROOT / source).exists()] == []


def test_the_dockerignore_lets_through_what_is_copied_and_nothing_else() -> None:
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    assert rules[0] == "*"
    assert {rule[1:] for rule in rules if rule.startswith("!")} == context_sources()


def test_every_install_from_an_index_checks_hashes() -> None:
    installs = [rest for rest in arguments("RUN") if "pip install" in rest]
    assert installs
    assert all("--require-hashes" in rest or "--no-index" in rest for rest in installs)


@pytest.mark.parametrize(
    ("status", "code"),
    [(200, 0), (503, 1)],
)
def test_the_health_check_passes_when_the_server_is_ready_and_else_says_why_not(
    status: int, code: int
) -> None:
    with scripted(page(status)) as server:
        port = server.url.rpartition(":")[2]
        # A proxy that cannot answer: the check must not ask it.
        environment = {"DARKROOM_PORT": port, "http_proxy": "http://127.0.0.1:9"}
        command = [sys.executable, str(HEALTHCHECK)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert server.requests[0].path.startswith("/readyz")
    assert (done.returncode, done.stdout) == (code, f"{status} <h1>proxy</h1>\n\n")
