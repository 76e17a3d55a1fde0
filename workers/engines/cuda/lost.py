"""Whether a device can still be used after an error."""

import torch

from workers.scheduling.engine import EngineLost


def diagnosed(error: Exception, device: torch.device) -> Exception:
    """The error itself, or EngineLost: after a sticky one every call on the device fails.

    Waits for all that was launched, so that nobody touches a failed batch's memory any more.
    """
    try:
        torch.cuda.synchronize(device)
    except RuntimeError as sticky:
        lost = EngineLost(f"{device} is lost: {str(sticky).splitlines()[0]}")
        lost.__cause__ = error
        return lost
    return error
