"""A thousand clients with slow work, who ask again a second after each refusal.

Old effect: 44 to 46 % of accepted requests died at their deadline, because admission counted but
never compared the wait with the deadline; `Retry-After: 1` while seconds of work were waiting.
Promise: under 1 % of accepted requests die. `tests.bench.overload` measures goodput.
"""

import asyncio
import time
from collections import Counter

from tests.bench.load import Connections, Reply, percentile, raw_post
from tests.chaos.harness.attack import Finding, Outcome, Steps, Target
from tests.pictures import jpeg

CLIENTS = 1000
LASTING = 45.0
_PAUSE = 1.0
SLOW = "/filter?name=median&size=31"


def impatient(target: Target) -> Steps:
    """Ask for slow work from a thousand clients, again a second after each refusal."""
    request = raw_post(SLOW, jpeg(1, 1600, 1200), more="Connection: close\r\n")
    connections = Connections(target.port, target.source)
    yield None
    replies: list[Reply] = []
    started = time.monotonic()

    async def client(number: int) -> None:
        await asyncio.sleep(number / CLIENTS)
        while time.monotonic() < started + LASTING:
            replies.append(await connections.ask(request))
            if replies[-1].status != 200:
                await asyncio.sleep(_PAUSE)

    async def crowd() -> None:
        await asyncio.gather(*(client(n) for n in range(CLIENTS)))

    asyncio.run(crowd())
    statuses = Counter(each.status for each in replies)
    accepted = len(replies) - statuses[503] - statuses[429]
    for status, count in sorted(statuses.items()):
        yield Finding(f"status_{status}", count)
    yield Finding("accepted_that_died_share", 1 - statuses[200] / max(1, accepted), most=0.01)
    yield Finding("goodput_per_s", statuses[200] / (time.monotonic() - started))
    refused = [each.seconds for each in replies if each.status in (503, 429)]
    yield Finding("refused_p99_ms", percentile(refused, 0.99) or 0.0)
    yield Outcome("answered", None, max(each.seconds for each in replies))
