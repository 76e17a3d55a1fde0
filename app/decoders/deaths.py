"""Why a decoder process ended, and what the client of its image is told."""

import os
import signal

from models.errors import ServiceError, Undecodable

_REASONS = {
    signal.SIGPROF: "cpu",
    signal.SIGXCPU: "cpu",
    signal.SIGXFSZ: "memory",
    signal.SIGSYS: "sandbox",
    signal.SIGKILL: "killed",
}

_TEXTS = {
    "cpu": "decoding the image took more CPU time than an image of its size may take "
    "(DARKROOM_DECODE_TIMEOUT for the largest)",
    "memory": "decoding the image took more memory than an image of its width and height may",
    "sandbox": "the decoder was stopped because it tried what no image needs",
    "killed": "the decoder was stopped while it read the image",
    "crash": "the decoder crashed on the image",
}


def reason_of(status: int | None) -> str:
    """The reason in one word, by the exit status as waitpid(2) gives it; None: not known."""
    if status is None or not os.WIFSIGNALED(status):
        return "crash"
    return _REASONS.get(signal.Signals(os.WTERMSIG(status)), "crash")


def error_of(reason: str) -> ServiceError:
    """The image's own error."""
    return Undecodable(f"{_TEXTS[reason]}; save it anew as a plain JPEG or PNG, or send it smaller")
