"""Requests without images: the catalogue of filters and networks, and health."""

from typing import Any

from darkroom_client.answers import decoded
from darkroom_client.conversation import Attempts, Wire, body_of, value_of
from darkroom_client.options import CallOptions
from darkroom_client.records import Filter, Filters, Health, Network, Networks
from darkroom_client.requests import Call, check_deadline
from darkroom_client.retries import Retries


def attempts(retries: Retries, options: CallOptions) -> Attempts:
    """Return the tries of one request; raises ValueError for a deadline that has passed."""
    check_deadline(options.get("deadline"))
    return Attempts(retries, options.get("deadline"), options.get("request_id") or "")


async def filters(wire: Wire, tries: Attempts) -> list[Filter]:
    """Return all filters of the server."""
    return (await value_of(wire, Call("GET", "/filters"), Filters, tries)).filters


async def networks(wire: Wire, tries: Attempts) -> list[Network]:
    """Return the networks of the server that have weights, the default one first."""
    return (await value_of(wire, Call("GET", "/models"), Networks, tries)).models


async def health(wire: Wire, tries: Attempts) -> Health:
    """Return the state of the server, also of one that is not ready."""
    call = Call("GET", "/readyz", params={"verbose": ""})
    body = await body_of(wire, call, tries, (200, 503))
    details = decoded(body, dict[str, Any])
    status = str(details.pop("status", "not ready"))
    return Health(status in ("ok", "degraded"), status, details)
