"""All attacks by name, each with the promise that it tests and what is promised about its requests.

`docs/reliability.md` numbers the promises. An attack stands here if it tests a promise by a
mechanism that no other attack reaches, and that no test of `tests/unit` or `tests/e2e` reaches.
"""

from tests.chaos.attacks import (
    bodies,
    bursts,
    images,
    impatient,
    slow_rates,
    workers_killed,
)
from tests.chaos.harness.attack import DEADLINE, SLACK, Attack

_IMAGES = dict.fromkeys(images.FILES, 5) | {"progressive_jpegs": 2}
"""The promise that each kind of file tests."""

_LISTED = (
    Attack(bursts.body_bursts, promise=1, patience=200),
    Attack(bursts.tiny_chunks, promise=1, resets_allowed=True),
    Attack(slow_rates.slow_bodies, promise=2, patience=90, resets_allowed=True),
    *(Attack(images.attack(name), promise) for name, promise in _IMAGES.items()),
    Attack(
        slow_rates.idle_connections,
        promise=4,
        ends_within=60 + SLACK,
        descriptors=1024,
        patience=150,
    ),
    Attack(images.dear_neighbourhoods, promise=4),
    Attack(
        slow_rates.slow_answers,
        promise=5,
        ends_within=90,
        patience=120,
        resets_allowed=True,
    ),
    Attack(images.enlarging_chains, promise=5),
    Attack(bodies.json_urls, promise=5),
    Attack(bodies.unfinished_json, promise=5, patience=120, resets_allowed=True),
    Attack(bodies.packed_tar_bombs, promise=5, patience=150),
    Attack(workers_killed.worker_killed, promise=6, front_ends=True),
    Attack(workers_killed.workers_stopped, promise=6, front_ends=True),
    Attack(
        impatient.impatient,
        promise=8,
        ends_within=DEADLINE + 2 * SLACK,
        patience=150,
    ),
)

ATTACKS = {attack.name: attack for attack in _LISTED}
