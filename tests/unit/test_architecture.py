"""The import table of docs/architecture.md, enforced."""

import ast
import functools
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

MODELS = {"models", "numpy", "PIL", "_pi_heif", "simplejpeg", "pydantic", "pydantic_settings"}
ENGINE_ONLY = {"torch", "torchvision", "cupy", "cupyx", "cuda", "safetensors", "timm"}
RAY_ROOMS = ("app/cluster.py", "workers/cluster.py")
"""The files that may import Ray, each inside the functions that use it."""

DECLARATIONS = ("workers.operations", "workers.filters")
ROOTS = (
    "app/main.py",
    "app/processes/member.py",
    "app/cli/commands/compare.py",
    "app/cli/commands/devices.py",
    "app/cli/commands/kernels.py",
    "app/cli/commands/weights.py",
    "app/processes/plan.py",
    "app/processes/private_server.py",
    "app/cluster.py",
)
"""The composition roots of `app`: of a server, of one process of several, of no server, of all, of
a bulk command, and of an application of Ray Serve."""

APP = (
    "system",
    "admission",
    "telemetry",
    "http",
    "archives",
    "connections",
    "urls",
    "storage",
    "intake",
    "fetch",
    "decoders",
    "pipeline",
    "responses",
    "jobs",
    "service",
    "routes",
    "grpc_service",
    "main",
    "warm_up",
    "processes",
    "cluster",
    "bulk",
    "cli",
)
"""The rooms of `app`: each may import only those before it."""

BULK = (
    "errors",
    "report",
    "walk",
    "contents",
    "sources",
    "atomic_file",
    "arrays",
    "journal",
    "tables",
    "folder",
    "work",
    "sender",
    "engine",
    "run",
)
"""What a bulk command reads and writes, then what answers it."""

WORKERS = (
    "kernels",
    "preprocess",
    "weights_store",
    "filters",
    "operations",
    "scheduling",
    "engines",
    "ipc",
    "backends",
    "cluster",
    "supervision",
)
"""The rooms of `workers`, in the same way."""

FILTERS = (
    "interruption",
    "arithmetic",
    "base",
    "bands",
    "separable",
    "tone",
    "histogram",
    "colour",
    "blur",
    "threshold",
    "rank",
    "smoothing",
    "sharpen",
    "fourier",
    "edges",
    "morphological",
    "effects",
    "geometry",
    "marks",
    "templates",
    "wide",
    "registry",
    "short_form",
)
"""What families of filters share, then the families; some of them build on blurs."""

ORDERS = {
    "app": APP,
    "app.bulk": BULK,
    "workers": WORKERS,
    "workers.filters": FILTERS,
}


def _modules(*packages: str) -> list[Path]:
    return sorted(path for package in packages for path in (ROOT / package).rglob("*.py"))


@functools.cache
def _nodes(path: Path) -> list[ast.AST]:
    """Return all nodes of a module."""
    return [*ast.walk(ast.parse(path.read_text()))]


def imports(path: Path) -> Iterator[str]:
    for node in _nodes(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield node.module or ""


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_models_import_only_words_and_pixels() -> None:
    for path in _modules("models"):
        roots = {name.split(".")[0] for name in imports(path)}
        assert roots <= MODELS | set(sys.stdlib_module_names), path


def test_workers_know_no_http_and_keep_torch_in_the_engines() -> None:
    for path in _modules("workers"):
        roots = {name.split(".")[0] for name in imports(path)}
        assert not roots & {"app", "fastapi", "starlette", "uvicorn"}, path
        if ROOT / "workers/engines" not in path.parents:
            assert not roots & ENGINE_ONLY, path


def test_the_front_end_sees_declarations_only() -> None:
    for path in _modules("app"):
        names = set(imports(path))
        assert not {name.split(".")[0] for name in names} & ENGINE_ONLY, path
        if _name(path) not in ROOTS:
            workers = [name for name in names if name.split(".")[0] == "workers"]
            assert all(name.startswith(DECLARATIONS) for name in workers), path


def _targets(path: Path) -> Iterator[str]:
    """Yield modules and what is imported from them: `from app import main` is `app.main`."""
    for node in _nodes(path):
        if isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


@pytest.mark.parametrize("package", ORDERS)
def test_rooms_import_only_rooms_before_them(package: str) -> None:
    order, folder = ORDERS[package], ROOT / package.replace(".", "/")
    for path in sorted(folder.rglob("*.py")):
        room = path.relative_to(folder).parts[0].removesuffix(".py")
        if room == "__init__":
            continue
        for target in _targets(path):
            if target.startswith(f"{package}."):
                other = target.removeprefix(f"{package}.").split(".")[0]
                assert {room, other} <= {*order}, f"{path}: give {other} a place in the order"
                assert order.index(other) <= order.index(room), f"{path} imports {target}"


def test_ray_is_imported_when_a_cluster_is_used_and_in_its_rooms_alone() -> None:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    for path in _modules("app", "models", "workers"):
        nodes = _nodes(path)
        if _name(path) in RAY_ROOMS:
            inside = {id(n) for each in nodes if isinstance(each, kinds) for n in ast.walk(each)}
            nodes = [node for node in nodes if id(node) not in inside]
        for node in nodes:
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            assert "ray" not in {name.split(".")[0] for name in names}, path


def test_the_domain_imports_nothing_else_of_models() -> None:
    for path in _modules("models/domain"):
        for target in _targets(path):
            assert not target.startswith("models.") or target.startswith("models.domain.")


def test_the_installed_name_imports_only_what_it_offers() -> None:
    for path in _modules("darkroom"):
        allowed = {"app.cli.script", "darkroom", *sys.stdlib_module_names}
        if path.name == "cluster.py":
            allowed |= {"app.cluster", "click", "models"}
        if path.name == "filters.py":
            allowed |= {"models", "workers"}
        names = {n if n.startswith("app") else n.split(".")[0] for n in imports(path)}
        assert names <= allowed
