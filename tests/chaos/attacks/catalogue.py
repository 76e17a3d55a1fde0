"""All attacks by name, with what is promised about the attacker's own requests."""

from collections.abc import Callable
from typing import Any

from tests.chaos.attacks import (
    announced_bodies,
    bursts,
    endless_headers,
    foreign_jobs,
    forms,
    idle,
    images,
    impatient,
    json_bodies,
    large_answers,
    limits,
    odd_archives,
    odd_connections,
    odd_forms,
    odd_grpc,
    odd_images,
    odd_jobs,
    odd_names,
    odd_options,
    odd_origins,
    odd_requests,
    odd_streams,
    odd_tls,
    origins,
    overload,
    protocol,
    slow_origins,
    slow_rates,
    tensors,
    trickled,
    unfinished_bodies,
    workers_killed,
)
from tests.chaos.harness.attack import DEADLINE, SLACK, Attack, Steps, Target

_ORIGIN = ("--fetch-allowed-networks", "127.0.0.0/8", "--fetch-ports", "1-65535")

_CONNECTIONS = (
    Attack(announced_bodies.announced_bodies, patience=130, resets_allowed=True),
    Attack(
        announced_bodies.announced_bodies_long,
        ends_within=120 + SLACK,
        patience=130,
        resets_allowed=True,
    ),
    Attack(announced_bodies.announced_many, patience=130, resets_allowed=True),
    Attack(announced_bodies.chunked_bodies, patience=130, resets_allowed=True),
    Attack(announced_bodies.expected_bodies, patience=130, resets_allowed=True),
    Attack(trickled.trickled_headers, ends_within=10 + SLACK, resets_allowed=True),
    Attack(trickled.trickled_request_line, ends_within=10 + SLACK, resets_allowed=True),
    Attack(
        trickled.trickled_bodies, ends_within=DEADLINE + SLACK, patience=140, resets_allowed=True
    ),
    Attack(endless_headers.endless_header_line, ends_within=10 + SLACK, resets_allowed=True),
    Attack(endless_headers.endless_headers, ends_within=10 + SLACK, resets_allowed=True),
    Attack(endless_headers.endless_request_line, ends_within=10 + SLACK, resets_allowed=True),
    Attack(endless_headers.header_lines, ends_within=10 + SLACK, resets_allowed=True),
    Attack(endless_headers.endless_trailers, resets_allowed=True),
    Attack(endless_headers.chunk_extensions, resets_allowed=True),
    Attack(endless_headers.tiny_chunks, resets_allowed=True),
    Attack(
        idle.idle_connections, ends_within=60 + SLACK, descriptors=1024, patience=150
    ),
    Attack(idle.idle_10000, ends_within=60 + SLACK, patience=170),
    Attack(idle.idle_after_answer, ends_within=60 + SLACK, descriptors=1024, patience=150),
    Attack(idle.connection_churn, patience=120),
    Attack(idle.pipelined, ends_within=60 + SLACK, patience=120, resets_allowed=True),
)  # fmt: skip

_SLOW = (
    Attack(slow_rates.slow_bodies, patience=90, resets_allowed=True),
    Attack(slow_rates.slow_bodies_many, patience=90, resets_allowed=True),
    Attack(slow_rates.slow_forms, patience=90, resets_allowed=True),
    Attack(slow_rates.slow_requests, ends_within=60 + SLACK, patience=90, resets_allowed=True),
    Attack(slow_rates.discarded_bodies, ends_within=30 + SLACK, patience=90, resets_allowed=True),
    Attack(slow_rates.slow_answers, ends_within=90, patience=120, resets_allowed=True),
    Attack(slow_rates.slow_answers_many, ends_within=90, patience=120, resets_allowed=True),
)

_REST = (
    Attack(impatient.impatient, ends_within=DEADLINE + 2 * SLACK, patience=150, own_addresses=True),
    Attack(overload.overload, patience=320, neighbours=0),
    Attack(overload.bulk, patience=120, neighbours_spared=False),
    Attack(limits.shared_limits, flags=limits.FLAGS, front_ends=True, neighbours_spared=False),
    *(Attack(images.attack(name)) for name in images.FILES),
    Attack(
        large_answers.large_answers,
        ends_within=120 + SLACK,
        patience=590,
        accepted=(200, 422),
    ),
    *(Attack(json_bodies.attack(name)) for name in json_bodies.BODIES),
    *(Attack(tensors.attack(name)) for name in tensors.BODIES),
    Attack(forms.form_punycode),
    Attack(forms.form_codecs, accepted=(400, 413, 422)),
    Attack(forms.form_parts),
    Attack(forms.form_boundaries),
    Attack(forms.form_fields),
    Attack(forms.data_uri),
    Attack(odd_forms.form_nested, patience=120),
    Attack(odd_forms.form_long_headers, patience=120),
    Attack(odd_forms.form_names, patience=200),
    Attack(odd_forms.form_empty, patience=120),
    Attack(odd_forms.form_near_boundaries, patience=120),
    Attack(odd_connections.expecting_bodies, patience=120, resets_allowed=True),
    Attack(odd_connections.pipelined_mix, patience=120),
    Attack(odd_connections.other_protocols, ends_within=60 + SLACK, patience=200),
    Attack(odd_connections.dear_chunks, patience=120, resets_allowed=True),
    Attack(odd_connections.coded_bodies, patience=120),
    Attack(odd_connections.list_floods, patience=200),
    Attack(bursts.head_bursts, patience=200),
    Attack(bursts.body_bursts, patience=200),
    Attack(origins.origin_continue, flags=_ORIGIN),
    Attack(origins.origin_headers, flags=_ORIGIN),
    Attack(origins.origin_chunks, flags=_ORIGIN),
    Attack(origins.origin_ports, accepted=(200, 422)),
    Attack(odd_origins.origin_redirects, flags=odd_origins.FLAGS, accepted=(200,)),
    Attack(odd_origins.origin_answers, flags=odd_origins.FLAGS, accepted=(200,)),
    Attack(slow_origins.origin_slow, flags=slow_origins.FLAGS, patience=120),
    *(
        Attack(
            each,
            flags=(*odd_origins.FLAGS, *flags),
            patience=120,
            own_addresses=True,
            names=True,
        )
        for each, flags in (
            (odd_names.names_unanswered, ()),
            (odd_names.names_failing, ()),
            (odd_names.names_rebinding, odd_names.FORGETFUL),
        )
    ),
    Attack(odd_images.odd_images, patience=400),
    Attack(odd_images.odd_json, patience=200),
    Attack(protocol.protocol_rules),
    Attack(odd_requests.odd_framing),
    Attack(odd_requests.odd_targets),
    Attack(odd_requests.header_floods),
    Attack(odd_requests.pipelined_images, ends_within=90, patience=120, resets_allowed=True),
    Attack(odd_options.odd_options, patience=300),
    Attack(odd_options.enlarging_chains),
    Attack(odd_options.dear_neighbourhoods),
    Attack(protocol.http_1_0),
    Attack(protocol.early_413, accepted=(413,)),
    Attack(protocol.slow_readers, ends_within=90, patience=120, resets_allowed=True),
    Attack(workers_killed.worker_killed, front_ends=True),
    Attack(workers_killed.worker_killed_twice, front_ends=True),
    Attack(workers_killed.all_workers_killed, front_ends=True),
    Attack(workers_killed.workers_stopped, front_ends=True),
)


def _tls(run: Callable[[Target], Steps], **promised: Any) -> Attack:
    """Return an attack on a server that all clients reach by TLS."""
    return Attack(run, tls=True, **promised)


_TLS = (
    _tls(odd_tls.tls_handshakes, ends_within=19 + SLACK, patience=90, resets_allowed=True),
    _tls(odd_tls.tls_key_updates, patience=90, resets_allowed=True),
    _tls(odd_tls.tls_small_records, patience=90),
    _tls(slow_rates.slow_answers_tls, ends_within=90, patience=120, resets_allowed=True),
    _tls(odd_tls.tls_aborted, patience=120),
    _tls(odd_tls.tls_sessions, patience=120),
    _tls(odd_tls.tls_odd_starts, patience=300, resets_allowed=True),
)

_GRPC = (
    Attack(odd_grpc.grpc_resets, flags=odd_grpc.FLAGS, resets_allowed=True),
    Attack(odd_grpc.grpc_frames, flags=odd_grpc.FLAGS, patience=120, resets_allowed=True),
    Attack(odd_grpc.grpc_unread, flags=odd_grpc.FLAGS, patience=120, resets_allowed=True),
)

_BATCHES = (
    Attack(odd_archives.zip_bodies, patience=200),
    Attack(odd_archives.tar_bodies, patience=300),
    Attack(odd_archives.archive_floods, patience=150),
    Attack(odd_archives.packed_tar_bombs, patience=150),
    Attack(odd_archives.job_archives, flags=odd_archives.FLAGS, patience=400),
    Attack(
        odd_archives.job_archive_floods, flags=odd_archives.FLAGS, ends_within=150, patience=300
    ),
    Attack(
        odd_archives.job_packed_tar_bombs, flags=odd_archives.FLAGS, ends_within=200, patience=300
    ),
    Attack(
        odd_streams.stream_lines,
        ends_within=90,
        own_addresses=True,
        patience=300,
        resets_allowed=True,
    ),
    Attack(
        odd_streams.stream_lengths,
        ends_within=90,
        own_addresses=True,
        patience=150,
        resets_allowed=True,
    ),
    Attack(odd_streams.stream_never_read, patience=90, own_addresses=True),
    Attack(odd_streams.stream_slow_readers, patience=90, own_addresses=True),
    Attack(odd_streams.stream_slow_writers, patience=120),
    Attack(odd_streams.stream_many, patience=120, own_addresses=True),
    Attack(unfinished_bodies.unfinished_forms, patience=120, resets_allowed=True),
    Attack(unfinished_bodies.unfinished_json, patience=120, resets_allowed=True),
    Attack(unfinished_bodies.unfinished_lines, patience=90),
    Attack(odd_jobs.job_manifests, flags=odd_jobs.FLAGS, patience=300, resets_allowed=True),
    Attack(odd_jobs.job_forms, flags=odd_jobs.FLAGS, patience=120),
    Attack(odd_jobs.job_flood, flags=odd_jobs.FLAGS, patience=900),
    Attack(odd_jobs.job_bodies, flags=odd_jobs.FLAGS, patience=120),
    Attack(odd_jobs.job_disk, flags=odd_jobs.LIMITED, patience=120, accepted=(413, 507)),
    Attack(foreign_jobs.job_addresses, flags=foreign_jobs.ALLOWED, accepted=(202, 404, 422, 502)),
    Attack(foreign_jobs.job_webhooks, flags=foreign_jobs.WEBHOOKS, patience=300),
    Attack(foreign_jobs.job_ids, flags=odd_jobs.FLAGS, patience=120),
)

ATTACKS = {
    attack.name: attack for attack in (*_CONNECTIONS, *_SLOW, *_REST, *_TLS, *_GRPC, *_BATCHES)
}
