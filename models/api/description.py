"""The options of `POST /info`, and the description of an image in its answers."""

from pydantic import BaseModel, ConfigDict, Field


class InfoOptions(BaseModel):
    """Options of `POST /info`, as query, form fields or JSON keys."""

    model_config = ConfigDict(extra="forbid")

    colour: bool = Field(True, description="false: no dominant colour, so that no pixel is decoded")


class ImageDescription(BaseModel):
    """Description of a file, by its header."""

    format: str
    width: int = Field(description="of the upright image, in pixels")
    height: int = Field(description="of the upright image, in pixels")
    orientation: int = Field(description="EXIF's, 1 to 8; 1 is upright")
    frames: int | None = Field(
        None, description="missing where there are several and the header has no count (GIF, TIFF)"
    )
    mode: str = Field(description="how the pixels are stored, by Pillow's name")
    exif: dict[str, str | int | float] = Field(
        description="camera, exposure, dates and author; no place, serial numbers or comments"
    )
    profile: str | None = Field(None, description="name of the embedded colour profile")
    colour: str | None = Field(
        None, description="dominant colour in sRGB as #rrggbb; missing if no pixel is opaque"
    )
