"""The simulation of `tools/scale` loses nothing, and agrees with known results of queueing."""

import random
from collections import deque
from dataclasses import replace

import pytest

from models.domain.job import Job
from tools.scale import measured, sizing
from tools.scale.simulation.clock import Clock, Station
from tools.scale.simulation.cpu_worker import CpuCosts
from tools.scale.simulation.fleet import Fleet
from tools.scale.simulation.gpu_host import Costs, Host
from tools.scale.simulation.jobs import IMAGE, OPERATION
from tools.scale.simulation.routing import AllWorkers, Choice, Fullest, TwoWorkers
from tools.scale.simulation.scenario import Outcome, Scenario

SERVICE = 0.01
ONE_CORE = CpuCosts(batch=0.0, image=SERVICE, cores=1)
PLAIN = Scenario(
    workers=50,
    costs=ONE_CORE,
    load=0.7,
    seconds=20.0,
    front_end=1e-9,
    network=0.0,
    batch=1,
    deadline=60.0,
)
COSTS = Costs(8e-4, 1.8e-3, 3e-5, (19_000.0, 26_000.0), 2e-4, 2.7e-5, 1.4e-5, 1, 0.0)


def mean(seen: Outcome) -> float:
    return sum(seen.latencies) / len(seen.latencies)


def test_events_come_in_the_order_of_their_moments() -> None:
    clock, seen = Clock(), list[str]()
    for moment, name in ((2.0, "c"), (1.0, "a"), (1.0, "b"), (9.0, "never")):
        clock.at(moment, seen.append, name)
    clock.run(5)
    assert (seen, clock.now) == (["a", "b", "c"], 5)


@pytest.mark.parametrize("exponential", [True, False])
def test_a_station_waits_as_long_as_theory_says(exponential: bool) -> None:
    clock, chance = Clock(), random.Random(3)
    station, load, waits = Station(clock), 0.7, list[float]()

    def arrive(_: object) -> None:
        waits.append(station.wait)
        station.take(chance.expovariate(1.0) if exponential else 1.0, lambda _: None)
        clock.at(clock.now + chance.expovariate(load), arrive)

    clock.at(0.0, arrive)
    clock.run(60_000)
    # M/M/1 and M/D/1 (Pollaczek and Khinchine): the wait with constant times is half as long.
    expected = load / (1 - load) * (1 if exponential else 0.5)
    assert sum(waits) / len(waits) == pytest.approx(expected, rel=0.08)


def test_random_workers_are_queues_of_their_own() -> None:
    seen = Fleet(replace(PLAIN, routing="random", load=0.6, seconds=10.0), 1).run()
    expected = SERVICE * (1 + 0.6 / (2 * (1 - 0.6)))  # M/D/1
    assert mean(seen) == pytest.approx(expected, rel=0.05)


def test_many_workers_with_full_knowledge_let_nothing_wait() -> None:
    seen = Fleet(replace(PLAIN, workers=150, routing="full knowledge", seconds=2.5), 1).run()
    assert seen.quantile(0.999) == pytest.approx(SERVICE * 1e3, rel=0.001)


def test_two_choices_shorten_queues_as_the_limit_of_many_workers_says() -> None:
    # Mitzenmacher, 2001: with exponential times the mean stay is the sum of load^(2^i - 2).
    load, workers = 0.8, 300
    clock, chance = Clock(), random.Random(5)
    policy, stays = TwoWorkers(workers, 5), list[float]()
    queues = [deque[tuple[float, Choice]]() for _ in range(workers)]

    def serve(worker: int) -> None:
        clock.at(clock.now + chance.expovariate(1.0), finish, worker)

    def finish(worker: int) -> None:
        came, choice = queues[worker].popleft()
        policy.ended(choice, 0.0, 1)
        if came > 20:
            stays.append(clock.now - came)
        if queues[worker]:
            serve(worker)

    def arrive(_: object) -> None:
        choice = Choice(Job(OPERATION, IMAGE))
        queue = queues[worker := policy.choose(choice)]
        queue.append((clock.now, choice))
        if len(queue) == 1:
            serve(worker)
        clock.at(clock.now + chance.expovariate(load * workers), arrive)

    clock.at(0.0, arrive)
    clock.run(100)
    expected = sum(load ** (2**i - 2) for i in range(1, 8))
    assert sum(stays) / len(stays) == pytest.approx(expected, rel=0.05)


def test_the_heap_finds_the_worker_that_the_real_router_finds() -> None:
    chance = random.Random(1)
    real, heap = AllWorkers(40, 1), Fullest(40, 1)
    held: list[tuple[Choice, Choice]] = []
    for step in range(3000):
        pair = Choice(Job(OPERATION, IMAGE)), Choice(Job(OPERATION, IMAGE))
        assert real.choose(pair[0]) == heap.choose(pair[1])
        held.append(pair)
        while held and chance.random() < 0.5:
            ended, same = held.pop(chance.randrange(len(held)))
            real.ended(ended, 0.01, 1)
            heap.ended(same, 0.01, 1)
        if step % 500 == 250:
            gone = chance.randrange(40)
            for each in (real, heap):
                (each.gone if step % 1000 == 250 else each.back)(gone)


@pytest.mark.parametrize("connections", [1, 40, 200])
def test_a_closed_loop_obeys_littles_law(connections: int) -> None:
    host = Host(COSTS, 1, 10)
    seen = host.run(connections, 1, 2.0)
    stay = sum(host.latencies) / len(host.latencies) + COSTS.client
    assert seen.images_per_second * stay == pytest.approx(connections, rel=0.05)
    assert seen.front_end_cores <= 10
    assert seen.mean_batch <= 64


def test_one_connection_waits_for_the_sum_of_all_stages() -> None:
    steady = replace(COSTS, spread=0.0)
    seen = Host(steady, 1, 10).run(1, 1, 1.0)
    stages = 8e-4 + 1.8e-3 + 3e-5 + 1 / 19_000 + 2e-4 + 2.7e-5 + 1.4e-5
    assert seen.p50_ms == pytest.approx(stages * 1e3, rel=1e-3)


HARD = replace(
    PLAIN,
    batch=8,
    workers=40,
    load=0.8,
    seconds=5.0,
    deadline=1.0,
    stragglers=0.1,
    rack=8,
    noticed_after=0.7,
    rack_at=2.5,
    lost_every=1.0,
    restart=0.5,
    peak=1.5,
    peak_from=3.5,
    spare=5,
    upscale_after=1.0,
)


@pytest.mark.parametrize("routing", ["two by work", "full knowledge", "random", "known 50 ms"])
@pytest.mark.parametrize("admission", [False, True])
def test_every_image_ends_once_whatever_happens(routing: str, admission: bool) -> None:
    seen = Fleet(replace(HARD, routing=routing, admission=admission), 4).run()
    assert seen.left == 0
    assert seen.came == seen.good + seen.refused + seen.expired + seen.failed
    assert seen.sent_again
    assert seen.good > seen.came / 4
    assert bool(seen.refused) == admission


def test_a_seed_gives_the_same_run_again() -> None:
    first, again, other = (Fleet(HARD, seed).run() for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_admission_keeps_accepted_images_alive() -> None:
    peak = replace(
        PLAIN, workers=20, batch=8, load=1.5, seconds=6.0, deadline=0.5, routing="full knowledge"
    )
    without, admitted = (Fleet(replace(peak, admission=on), 1).run() for on in (False, True))
    assert without.expired > 0.2 * without.came
    assert admitted.expired < 0.02 * admitted.came
    assert admitted.good > 0.6 * admitted.came


def test_no_image_waits_for_a_batch_longer_than_it_may() -> None:
    waiting = replace(PLAIN, batch=8, load=0.05, batch_wait=0.02, routing="random", seconds=10.0)
    seen = Fleet(waiting, 1).run()
    assert seen.quantile(0.5) >= 20
    assert seen.quantile(1.0) < (0.02 + 9 * SERVICE) * 1e3


def test_costs_come_from_results() -> None:
    serve = measured.result("serve_gpu")["runs"][0]["parts"]["darkroom"]["subsampled"]["raw"]
    costs = measured.served(0, "raw")
    stages = costs.front_end * serve["best"]["server_cores"]["busiest front end"]
    stages += costs.launch_batch + 1 / costs.decoding[0] + costs.compute_batch + costs.compute_image
    assert stages * 1e3 == pytest.approx(serve["p50_ms_at_1"])
    assert 1 < measured.host_slowness() < 1.5


def test_a_fleet_for_the_peak_carries_it() -> None:
    for size in sizing.sizes():
        carried = (size.at_peak - 1) * size.machine.per_second
        assert carried >= sizing.peak_rate() / 0.7 - 1e-6
        assert carried - size.machine.per_second < sizing.peak_rate() / 0.7
