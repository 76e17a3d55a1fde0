"""No client keeps the work of a process from others, however many jobs it has."""

from app.jobs.runner import JOBS_AT_ONCE, LOOK_AROUND, TURN, Turns
from tests.fakes import FakeClock
from tests.job_store import job


def test_the_job_of_another_client_takes_the_place_of_the_last_one_of_many() -> None:
    clock = FakeClock(1000.0)
    turns = Turns(clock)
    mine = [job(f"{n}", "me") for n in range(JOBS_AT_ONCE + 4)]
    for each in turns.choose(mine):
        turns.begin(each.id)
    assert not turns.is_due()
    clock.advance(LOOK_AROUND)
    assert turns.is_due()
    yours = job("yours", "you")
    assert turns.choose([mine[0], yours, *mine[1:]]) == [yours]
    assert turns.over == {mine[JOBS_AT_ONCE - 1].id}
    turns.begin("yours")
    clock.advance(10 * TURN)
    assert turns.choose([mine[0], yours, *mine[1:]]) == []
    turns.end(mine[JOBS_AT_ONCE - 1].id)
    assert turns.over == set()


def test_more_clients_than_jobs_in_work_have_a_turn_each() -> None:
    clock = FakeClock(1000.0)
    turns = Turns(clock)
    jobs = [job(f"{n:02}", f"client {n}") for n in range(3 * JOBS_AT_ONCE)]
    seen: list[str] = []
    for _ in range(6):
        for each in turns.choose(jobs):
            turns.begin(each.id)
            seen.append(each.id)
        for id_ in [*turns.over]:
            turns.end(id_)
        clock.advance(TURN / 2)
    assert seen == [each.id for each in jobs]


def test_jobs_that_fail_again_and_again_keep_no_place_from_others() -> None:
    clock = FakeClock(1000.0)
    turns = Turns(clock)
    jobs = [job(f"{n:02}", f"client {n}") for n in range(JOBS_AT_ONCE + 2)]
    seen: list[str] = []
    for _ in range(2):
        chosen = turns.choose(jobs)
        for each in chosen:
            turns.begin(each.id)
            seen.append(each.id)
        clock.advance(5.0)
        for each in chosen:  # not by the end of its turn
            turns.end(each.id)
    assert set(seen) == {each.id for each in jobs}


def test_a_job_that_rests_comes_behind_those_that_had_no_turn() -> None:
    clock = FakeClock(1000.0)
    turns = Turns(clock)
    jobs = [job(f"{n:02}", f"client {n}") for n in range(JOBS_AT_ONCE + 1)]
    for each in turns.choose(jobs):
        turns.begin(each.id)
    clock.advance(5.0)
    for each in jobs[:JOBS_AT_ONCE]:
        turns.end(each.id)
    assert turns.choose(jobs, lambda id_: id_ == "00")[0] == jobs[-1]
    assert turns.choose(jobs)[0] == jobs[-1]
