"""Bound the messages that arrive at the same time, because gRPC holds each of them whole.

While a message is not read, flow control keeps all but its first 64 kB with the client. A slot is
the right to read one, so the slots times the largest message, and times the copies that there are
of it, bound the memory of what arrives.
"""

from app.admission.fair_semaphore import FairSemaphore, at_most

MEMORY = 1 << 27
"""Bytes of all messages that arrive at the same time in one process, with their copies, where slots
allow it. What is computed meanwhile needs the rest of the 300 MB that an attacker may take. Eight
messages at a time of 0.1 to 6 MB came at no lower rate than 32."""

COPIES = 2
"""Copies of a message: grpcio's, and the bytes that are made of it. The allocator keeps the memory
of both, even where one of a message is freed before the other is made."""

FEWEST = 2
"""Slots that there are however large a message may be."""


def message_slots(largest: int, memory: int = MEMORY) -> FairSemaphore:
    """Return the slots for messages of at most `largest` bytes; a client holds at most half."""
    total = max(FEWEST, memory // (COPIES * largest))
    return FairSemaphore(total, at_most(total // 2))
