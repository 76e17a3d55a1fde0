"""Client of Darkroom: labels and filters for any number of images.

Start reading at `client.py`; `conversation.py` holds what both clients share.
May import httpx and msgspec, and nothing of the server.
"""

from darkroom_client.client import AsyncClient as AsyncClient
from darkroom_client.client import Client as Client
from darkroom_client.errors import (
    Busy as Busy,
)
from darkroom_client.errors import (
    ConnectionFailed as ConnectionFailed,
)
from darkroom_client.errors import (
    DarkroomError as DarkroomError,
)
from darkroom_client.errors import (
    DeadlineExceeded as DeadlineExceeded,
)
from darkroom_client.errors import (
    FieldError as FieldError,
)
from darkroom_client.errors import (
    ImageError as ImageError,
)
from darkroom_client.errors import (
    InvalidAnswer as InvalidAnswer,
)
from darkroom_client.errors import (
    InvalidRequest as InvalidRequest,
)
from darkroom_client.errors import (
    Problem as Problem,
)
from darkroom_client.errors import (
    RequestError as RequestError,
)
from darkroom_client.errors import (
    ServerError as ServerError,
)
from darkroom_client.errors import (
    TooLarge as TooLarge,
)
from darkroom_client.errors import (
    Unauthorized as Unauthorized,
)
from darkroom_client.images import Image as Image
from darkroom_client.images import Source as Source
from darkroom_client.options import (
    Operation as Operation,
)
from darkroom_client.options import (
    Operations as Operations,
)
from darkroom_client.options import (
    Progress as Progress,
)
from darkroom_client.options import (
    Versions as Versions,
)
from darkroom_client.records import (
    Filter as Filter,
)
from darkroom_client.records import (
    FilteredImage as FilteredImage,
)
from darkroom_client.records import (
    Health as Health,
)
from darkroom_client.records import (
    ImageClass as ImageClass,
)
from darkroom_client.records import (
    ImageInfo as ImageInfo,
)
from darkroom_client.records import (
    ImageResult as ImageResult,
)
from darkroom_client.records import (
    Job as Job,
)
from darkroom_client.records import (
    Match as Match,
)
from darkroom_client.records import (
    Network as Network,
)
from darkroom_client.records import (
    Prediction as Prediction,
)
from darkroom_client.records import (
    Version as Version,
)
from darkroom_client.retries import Retries as Retries
