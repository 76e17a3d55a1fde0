"""The inputs of the fuzzers are the same in every run."""

from tests.chaos import fuzz_codec


def test_the_files_that_are_mutated_are_the_same_in_every_run() -> None:
    assert fuzz_codec.drawn() == fuzz_codec.drawn()
