"""Values that shells offer for a flag. `darkroom completion` writes them into its scripts."""

import argparse
from collections.abc import Sequence

OFFERED = "darkroom_offered"
"""The attribute of an action that holds the values for completion; None stands for files."""


def complete_with(action: argparse.Action, values: Sequence[str]) -> None:
    """Let shells offer these values; others stay allowed. `completion.py` reads the mark."""
    vars(action)[OFFERED] = tuple(values)


def complete_files(action: argparse.Action) -> None:
    """Let shells offer the names of files."""
    vars(action)[OFFERED] = None
