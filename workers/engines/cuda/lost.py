"""Decide whether a device can still be used after an error."""

import torch

from workers.scheduling.engine import EngineLost


def diagnosed(error: Exception, device: torch.device) -> Exception:
    """Return the error itself, or EngineLost where it is sticky: every later call fails then.

    This waits for everything that was launched, so that nothing uses a failed batch's memory any
    more.
    """
    try:
        torch.cuda.synchronize(device)
    except RuntimeError as sticky:
        lost = EngineLost(f"{device} is lost: {str(sticky).splitlines()[0]}")
        lost.__cause__ = error
        return lost
    return error
