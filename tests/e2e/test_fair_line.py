"""The order in which a real server serves the images of one client."""

import threading
from concurrent.futures import ThreadPoolExecutor, wait

from tests.e2e.conftest import Running
from tests.pictures import jpeg

QUICK = "/filter?name=invert"
HEADERS = {"content-type": "image/jpeg", "x-deadline-ms": "120000"}
SLOW = 24
"""Images of some tenths of a second each, more than are past the line at a time."""


def test_a_photo_does_not_wait_for_the_slow_images_of_its_client_that_came_first(
    server: Running,
) -> None:
    line, done = server.app.state.service.admission.line, []
    slow, quick = jpeg(1, 160, 120), jpeg(2, 64, 48)
    again = threading.Event()

    def ask_slow(number: int) -> None:
        reply = server.client.post("/filter?name=nl_means", content=slow, headers=HEADERS)
        assert reply.status_code == 200, reply.text
        done.append(number)

    assert server.client.post(QUICK, content=quick, headers=HEADERS).status_code == 200
    with ThreadPoolExecutor(SLOW) as pool:
        asked = [pool.submit(ask_slow, number) for number in range(SLOW)]
        while line.waiting < SLOW // 2 and not all(each.done() for each in asked):
            again.wait(0.005)
        before = len(done)
        assert server.client.post(QUICK, content=quick, headers=HEADERS).status_code == 200
        meanwhile = len(done) - before
        wait(asked)
    for each in asked:
        each.result()
    assert meanwhile < SLOW // 2 - 2, "it was served after the images that waited before it"
