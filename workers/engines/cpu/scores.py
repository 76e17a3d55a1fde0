"""The best classes of an image, of its logits on the CPU."""

import numpy as np
from numpy.typing import NDArray

from models.domain.job import Job, Labels
from workers.operations import Classify, FunctionToApply


def labels(logits: NDArray[np.float32], job: Job) -> Labels:
    """Return the labels that a job wants of its logits, float32 (classes,)."""
    assert isinstance(job.operation, Classify)
    scores = _scores(logits, job.operation.function_to_apply)
    # Stable, so that classes of equal scores keep their order, and the same image has the same
    # labels every time.
    best = np.argsort(-scores, kind="stable")[: job.operation.top_k]
    return Labels(tuple(best.tolist()), tuple(scores[best].tolist()))


def _scores(logits: NDArray[np.float32], function: FunctionToApply) -> NDArray[np.float32]:
    if function is FunctionToApply.SOFTMAX:
        # Without the subtraction, which changes no share, exp overflows float32 from 89 on.
        powers = np.exp(logits - logits.max())
        return np.asarray(powers / powers.sum())
    if function is FunctionToApply.SIGMOID:
        return np.float32(1) / (np.float32(1) + np.exp(-logits))
    return logits
