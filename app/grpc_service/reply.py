"""Write the answer of ModelInfer: its outputs stand as raw bytes behind their descriptions."""

from collections.abc import Mapping, Sequence
from typing import Any

from app.grpc_service.messages import message_class
from app.pipeline.results.outcomes import Answer
from app.responses.inference.inference_reply import InferenceStyle, reply_parameters
from app.responses.inference.tensors import output_tensor

_ModelInferResponse = message_class("inference.ModelInferResponse")


def written(answers: Sequence[Answer], style: InferenceStyle) -> bytes:
    """Return the serialized answer."""
    reply = _ModelInferResponse(model_name=style.model, model_version=style.version, id=style.id)
    _set(reply.parameters, reply_parameters(answers, style.record))
    for wanted in style.outputs:
        tensor = output_tensor(wanted, answers, style.width, style.labels)
        reply.outputs.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.shape)
        reply.raw_output_contents.append(tensor.raw())
    serialized: bytes = reply.SerializeToString()
    return serialized


def _set(parameters: Any, values: Mapping[str, str | bool | int]) -> None:
    for name, value in values.items():
        if isinstance(value, bool):
            parameters[name].bool_param = value
        elif isinstance(value, int):
            parameters[name].int64_param = value
        else:
            parameters[name].string_param = value
