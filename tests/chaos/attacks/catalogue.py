"""All attacks by name, each with the promise that it tests and what is promised about its requests.

`docs/reliability.md` numbers the promises. An attack stands here if it tests a promise by a
mechanism that no other attack reaches.
"""

from tests.chaos.attacks import (
    announced_bodies,
    bursts,
    endless_headers,
    forms,
    idle,
    images,
    impatient,
    json_bodies,
    odd_archives,
    odd_connections,
    odd_options,
    odd_origins,
    odd_requests,
    overload,
    slow_origins,
    slow_rates,
    trickled,
    unfinished_bodies,
    workers_killed,
)
from tests.chaos.harness.attack import DEADLINE, SLACK, Attack

_LISTED = (
    Attack(bursts.body_bursts, promise=1, patience=200),
    Attack(endless_headers.tiny_chunks, promise=1, resets_allowed=True),
    Attack(json_bodies.attack("json_deep"), promise=1),
    Attack(forms.form_parts, promise=1),
    Attack(odd_requests.odd_framing, promise=1),
    Attack(announced_bodies.announced_many, promise=2, patience=130, resets_allowed=True),
    Attack(slow_rates.slow_bodies, promise=2, patience=90, resets_allowed=True, own_addresses=True),
    Attack(images.attack("progressive_jpegs"), promise=2),
    Attack(images.attack("jpeg_restarts"), promise=2),
    Attack(images.attack("gif_lzw"), promise=2),
    Attack(odd_options.odd_options, promise=3, patience=300),
    Attack(odd_archives.zip_bodies, promise=3, patience=200),
    Attack(trickled.trickled_headers, promise=4, ends_within=10 + SLACK, resets_allowed=True),
    Attack(endless_headers.endless_headers, promise=4, ends_within=10 + SLACK, resets_allowed=True),
    Attack(
        idle.idle_connections, promise=4, ends_within=60 + SLACK, descriptors=1024, patience=150
    ),
    Attack(odd_options.dear_neighbourhoods, promise=4, own_addresses=True),
    Attack(slow_origins.origin_slow, promise=4, flags=slow_origins.FLAGS, patience=120),
    Attack(idle.pipelined, promise=5, ends_within=60 + SLACK, patience=120, resets_allowed=True),
    Attack(
        slow_rates.slow_answers,
        promise=5,
        ends_within=90,
        patience=120,
        resets_allowed=True,
        own_addresses=True,
    ),
    Attack(images.attack("accepted_jpegs"), promise=5),
    Attack(images.attack("png_text_bomb"), promise=5),
    Attack(images.attack("png_profile_bomb"), promise=5),
    Attack(images.attack("tiff_huge_strip"), promise=5),
    Attack(images.attack("webp_lossless"), promise=5),
    Attack(images.attack("avif_lying_size"), promise=5),
    Attack(odd_options.enlarging_chains, promise=5),
    Attack(json_bodies.attack("json_urls"), promise=5),
    Attack(odd_connections.coded_bodies, promise=5, patience=120),
    Attack(unfinished_bodies.unfinished_json, promise=5, patience=120, resets_allowed=True),
    Attack(odd_archives.packed_tar_bombs, promise=5, patience=150),
    Attack(workers_killed.worker_killed, promise=6, front_ends=True),
    Attack(workers_killed.all_workers_killed, promise=6, front_ends=True),
    Attack(workers_killed.workers_stopped, promise=6, front_ends=True),
    Attack(overload.overload, promise=8, patience=320, neighbours=0),
    Attack(
        impatient.impatient,
        promise=8,
        ends_within=DEADLINE + 2 * SLACK,
        patience=150,
        own_addresses=True,
    ),
    Attack(overload.bulk, promise=9, patience=120, neighbours_spared=False),
    Attack(odd_origins.origin_redirects, promise=10, flags=odd_origins.FLAGS, accepted=(200,)),
)

ATTACKS = {attack.name: attack for attack in _LISTED}
