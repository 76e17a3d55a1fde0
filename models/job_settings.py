"""The types of the settings about jobs, which `Settings` lists."""

from pathlib import Path
from typing import Annotated

from pydantic import Field

from models.setting_types import Size

DataFolder = Annotated[
    Path | None,
    Field(
        description="folder of jobs: their state, manifests and results; several hosts may share "
        "it; none: there are no jobs",
    ),
]
"""The folder of jobs, or None."""

JobsDatabase = Annotated[
    str | None,
    Field(
        pattern=r"^(sqlite\+aiosqlite|postgresql\+psycopg)://",
        description="database of jobs, as postgresql+psycopg://user:password@host/name where "
        "several hosts share jobs and the data folder; none: SQLite in the data folder",
    ),
]
"""The URL of a database as SQLAlchemy writes it, or None."""

JobRetention = Annotated[
    float, Field(gt=0, description="seconds for which the results of a finished job are kept")
]
"""Seconds between the end of a job and the removal of its files."""

JobsPerClient = Annotated[
    int, Field(ge=1, description="jobs of one client that may be queued or running")
]
"""Jobs of one client that have not finished."""

JobItems = Annotated[int, Field(ge=1, description="images of one job")]
"""Items of one manifest."""

JobBytes = Annotated[Size, Field(ge=1, description="bytes of the body that makes a job")]
"""Bytes of a manifest or an archive."""

DataBytes = Annotated[
    Size,
    Field(ge=1, description="bytes of the data folder; no job is taken, and none goes on, beyond"),
]
"""Bytes of all manifests, archives and results."""

ClientDataBytes = Annotated[
    Size,
    Field(
        ge=0,
        description="bytes of the data folder that the jobs of one client may take; no job of it "
        "is taken, and none goes on, beyond; 0: three quarters of DARKROOM_MAX_DATA_BYTES",
    ),
]
"""Bytes of all manifests, archives and results of one client."""

JobImages = Annotated[
    int,
    Field(
        ge=0,
        description="images of jobs in work at a time, in each process that serves HTTP; 0: enough "
        "to keep the device busy",
    ),
]
"""Images of jobs that one process works on."""

JobFetchRetries = Annotated[
    int,
    Field(
        ge=0,
        le=20,
        description="further tries of an image of a job whose origin is busy or cannot be reached, "
        "each after a pause, beside those of DARKROOM_FETCH_RETRIES",
    ),
]
"""Tries of an image of a job after its first fetch has failed."""
