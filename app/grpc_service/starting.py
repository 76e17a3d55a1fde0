"""Check before the start of a server that gRPC can be served; imports no grpcio."""

from importlib.util import find_spec


def check() -> None:
    """Raise ValueError where the extra is missing."""
    if not all(map(_installed, ("grpc", "google.protobuf"))):
        raise ValueError(
            'DARKROOM_GRPC_PORT needs the extra `grpc`: in a checkout run `pip install ".[grpc]"`, '
            "or install requirements-grpc.lock"
        )


def _installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # of the package that it is part of
        return False
