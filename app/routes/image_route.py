"""Routes that take images: FastAPI documents them, but does not call them.

FastAPI's dependencies and exit stacks take 0.09 ms for a request, a fifth of the CPU time that an
image costs a front end.
"""

from functools import partial

from fastapi import Request
from fastapi.routing import APIRoute
from starlette.types import Receive, Scope, Send

from app.admission.clients import client_of
from app.http.request import content_type, deadline_of, departure_of, lane_of
from app.intake.body import announced, coding_of, counted, too_large, unpacked
from app.intake.stream import is_stream
from app.responses.answers import StreamedBody
from app.routes.middleware import NAME
from app.service import Service, service_in
from models.domain.errors import Draining, Forbidden, Overloaded, RateLimited, Unauthorized
from models.domain.job import counts


class ImageRoute(APIRoute):
    """A route that admits each request, and holds its permit until the answer can be sent whole.

    Its endpoint takes only the request, whose scope has the permit, and returns a response.
    """

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request with a permit, which counts the body as it arrives and then as an image.

        A request that admission refuses is counted in the metrics.
        """
        if scope["method"] not in (self.methods or ()):
            await super().handle(scope, receive, send)
            return
        service = service_in(scope)
        most, n_bytes, kind = service.settings.max_body_bytes, announced(scope), content_type(scope)
        stream = is_stream(kind)
        try:
            client, coding = client_name(service, scope), coding_of(scope)
            if n_bytes > most and not stream:
                raise too_large(n_bytes, most)
            deadline = deadline_of(scope, service.settings)
            entered = service.admission.enter(client, deadline, lane_of(scope))
            with departure_of(scope), entered as permit:
                scope["permit"] = permit
                if not stream:
                    receive = counted(receive, permit, most)
                if coding and stream:  # what its images hold is counted one by one
                    receive = unpacked(scope, receive, coding, None, lambda _n_bytes: None)
                elif coding:
                    receive = unpacked(scope, receive, coding, most, partial(permit.grow, 0))
                response = await self.endpoint(Request(scope, receive, send))
                if not isinstance(response, StreamedBody) or response.counted:
                    # Its body is written at once, or is counted as unread. A client that does not
                    # read it must not keep images from others; one that has read it may ask again
                    # at once, and must not be told that it still holds this.
                    permit.release()
                await response(scope, receive, send)
        except (Draining, Overloaded, RateLimited, Unauthorized, Forbidden) as error:
            reason = error.reason if isinstance(error, Overloaded) else error.code
            if counts():
                service.metrics.rejections.labels(reason).inc()
            raise


def client_name(service: Service, scope: Scope) -> str:
    """Return the name of the request's API key if keys are needed, else the client's address.

    Wrong keys are charged to the address, so that a rate limit bounds guessing. Every route that
    needs a key calls this. Raises Unauthorized, Forbidden and RateLimited.
    """
    address = client_of(scope)
    if service.keys is None:
        return address
    try:
        name = scope[NAME] = f"key {service.keys.client_of(scope)}"
    except Unauthorized:
        service.admission.charge_rate(address, 1)
        raise
    return name
