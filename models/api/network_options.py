"""The options that choose a network, its output, and the form of its vectors."""

from typing import Annotated, Literal

from pydantic import Field

ModelName = Annotated[
    str | None,
    Field(description="network that answers, one of `GET /models`; if not given, the first"),
]
OutputName = Annotated[
    Literal["labels", "logits", "embedding"],
    Field(
        description="labels; or logits, the values of all classes in class order; or embedding, "
        "the features before the last layer (512 of resnet18 and resnet34, 2048 of resnet50)"
    ),
]
VectorFormat = Annotated[
    Literal["numbers", "base64"],
    Field(description="of logits and embeddings: JSON numbers, or base64 of little-endian float32"),
]
