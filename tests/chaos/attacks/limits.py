"""Limits with several front ends: what the settings say holds for all of them together.

Old effect: limits were shared out silently, so that one front end refused what the settings allow.
Promise: a request that the settings allow is taken, and all front ends together hold no more.
"""

from tests.chaos.attacks.impatient import slow_request
from tests.chaos.harness.attack import Finding, Steps, Target
from tests.chaos.harness.http import ask, ask_all, post
from tests.pictures import jpeg

IMAGES = 8
FLAGS = ("--max-images-in-flight", str(IMAGES), "--max-images-per-request", str(IMAGES))


def shared_limits(target: Target) -> Steps:
    """Send as many images as the settings allow to one of two front ends, then three times that."""
    head = b'--b\r\nContent-Disposition: form-data; name="files"; filename="a.jpg"\r\n\r\n'
    form = b"".join(head + jpeg(n) + b"\r\n" for n in range(IMAGES)) + b"--b--\r\n"
    whole = post("/classify", form, "multipart/form-data; boundary=b")
    slow = [slow_request()] * (3 * IMAGES)
    yield None
    refused = 0
    for _ in range(4):
        found = ask(target, whole)
        refused += found.status != 200
        yield found
    yield Finding("allowed_but_refused", refused, most=0)
    accepted = 0
    for outcome in ask_all(target, slow, 60.0):
        accepted += outcome.status == 200
        yield outcome
    yield Finding("accepted_at_once", accepted, most=2 * IMAGES, least=1)
