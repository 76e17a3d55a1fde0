"""The reason for the end of a decoder process, and the resulting error of its image."""

import os
import signal

from app.decoders.frames import Encode, Task
from models.domain.errors import ServiceError, Unavailable, Undecodable, Unprocessable

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
    "sandbox": "the decoder was stopped because it made a system call that no image needs",
    "crash": "the decoder crashed on the image",
    "stuck": "the decoder got stuck on the image",
}

_ENCODING = {
    "cpu": "encoding the image as asked took more CPU time than is allowed "
    "(DARKROOM_ENCODE_TIMEOUT)",
    "memory": "encoding the image as asked took more memory than is allowed",
}


class Killed(Unavailable):
    """A process was killed from outside: its fork server ended, or the host ran out of memory.

    The image is not the reason, so it is worth another process.
    """

    def __init__(self) -> None:
        super().__init__("the system stopped the process of the image; send it again later")


def reason_of(status: int | None) -> str:
    """Return the reason in one word, by the exit status as waitpid(2) gives it; None: unknown."""
    if status is None or not os.WIFSIGNALED(status):
        return "crash"
    return _REASONS.get(signal.Signals(os.WTERMSIG(status)), "crash")


def error_of(reason: str, task: Task | Encode) -> ServiceError:
    """Return the image's own error, or Killed."""
    if reason == "killed":
        return Killed()
    if isinstance(task, Encode):
        text = _ENCODING.get(reason, "the encoder stopped on the image")
        return Unprocessable(f"{text}; ask for another format or faster options")
    return Undecodable(f"{_TEXTS[reason]}; save it anew as a plain JPEG or PNG, or send it smaller")
