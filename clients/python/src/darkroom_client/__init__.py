"""Client of Darkroom: labels and filters for any number of images.

Start reading at `client.py`; `conversation.py` holds what both clients share.
May import httpx and msgspec, and nothing of the server.
"""

from darkroom_client.async_client import AsyncClient
from darkroom_client.client import Client
from darkroom_client.errors import (
    Busy,
    ConnectionFailed,
    DarkroomError,
    DeadlineExceeded,
    FieldError,
    ImageError,
    InvalidAnswer,
    InvalidRequest,
    Problem,
    RequestError,
    ServerError,
    TooLarge,
    Unauthorized,
)
from darkroom_client.images import Image, Source
from darkroom_client.options import Operation, Operations, Progress, Versions
from darkroom_client.records import (
    Filter,
    FilteredImage,
    Health,
    ImageClass,
    ImageInfo,
    ImageResult,
    Job,
    Network,
    Prediction,
    Version,
)
from darkroom_client.retries import Retries

__all__ = [
    "AsyncClient",
    "Busy",
    "Client",
    "ConnectionFailed",
    "DarkroomError",
    "DeadlineExceeded",
    "FieldError",
    "Filter",
    "FilteredImage",
    "Health",
    "Image",
    "ImageClass",
    "ImageError",
    "ImageInfo",
    "ImageResult",
    "InvalidAnswer",
    "InvalidRequest",
    "Job",
    "Network",
    "Operation",
    "Operations",
    "Prediction",
    "Problem",
    "Progress",
    "RequestError",
    "Retries",
    "ServerError",
    "Source",
    "TooLarge",
    "Unauthorized",
    "Version",
    "Versions",
]
