"""The thread on which long JSON and long options of requests are parsed.

Parsers hold the interpreter's lock for milliseconds. Where several threads do, the event loop waits
for all of them whenever it has waited for a connection: while 400 wrong bodies were parsed on six
threads, `/livez` took 1.5 s on two cores. One thread parses as much.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

_THREAD = ThreadPoolExecutor(1, "parsing")


async def in_parsing_thread(function: Callable[..., T], *args: object) -> T:
    """Return what a function returns that parses; raises what it raises."""
    return await asyncio.get_running_loop().run_in_executor(_THREAD, function, *args)
