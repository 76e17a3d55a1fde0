"""Many images over several connections: a thread for each request that is under way."""

import threading
from collections.abc import Generator, Iterable, Iterator
from queue import SimpleQueue

import httpx

from darkroom_client.flow import DONE, Flow, Report
from darkroom_client.image_results import results_of
from darkroom_client.images import Groups, Item, Source, item, length, one_or_many
from darkroom_client.records import ImageResult
from darkroom_client.requests import ImageCall
from darkroom_client.settings import Settings
from darkroom_client.sync_wire import Stopped, SyncWire, iterate


def groups(images: Iterable[Source], settings: Settings) -> Iterator[list[Item]]:
    """Yield the images of each request; images are taken from the caller only when needed."""
    collected = Groups(settings.images_per_request, settings.bytes_per_request)
    for index, image in enumerate(images):
        yield from collected.add(item(index, image))
    yield from collected.rest()


def results(
    http: httpx.Client, call: ImageCall, images: Iterable[Source], settings: Settings
) -> Generator[ImageResult, None, None]:
    """Yield the result of each image, each as it finishes.

    After an error of a whole request the results of those under way are yielded, then the error is
    raised. When the caller stops, requests under way are given up.
    """
    _, images = one_or_many(images)
    flow = Flow(call, settings.connections, length(images))
    waiting = groups(images, settings)
    reports: SimpleQueue[Report] = SimpleQueue()
    stop = threading.Event()

    def converse(one: ImageCall, group: list[Item]) -> None:
        conversation = results_of(SyncWire(http, stop), one, group, settings.retries)
        try:
            for result in iterate(conversation):
                reports.put(result)
        except Stopped:
            pass
        except BaseException as error:  # `Flow` raises it again in the thread of the caller
            reports.put(error)
        finally:
            reports.put(DONE)

    try:
        while True:
            group = next(waiting, None) if reports.empty() and flow.may_start() else None
            if group is not None:
                # A daemon: a program that ends does not wait for answers that nothing reads.
                threading.Thread(target=converse, args=(flow.start(), group), daemon=True).start()
            elif reports.empty() and flow.ended():
                return
            elif (result := flow.take(reports.get())) is not None:
                yield result
    finally:
        stop.set()
