"""The messages of the protocol, made of a compiled description in a pool of their own.

`inference.binpb` is the compiled form of `inference.proto` and `retry.proto`. After a change of
these run in this folder, with grpcio-tools, `python -m grpc_tools.protoc -I. --include_imports
--descriptor_set_out=inference.binpb inference.proto retry.proto`; a test compares the result.

Modules that protoc generates would put the messages into protobuf's common pool, which has room for
a single definition of each name: a process that also imports a client of Triton or KServe would
fail.
"""

from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

COMPILED = Path(__file__).with_name("inference.binpb")

_POOL = descriptor_pool.DescriptorPool()
for _file in descriptor_pb2.FileDescriptorSet.FromString(COMPILED.read_bytes()).file:
    _POOL.Add(_file)


def message_class(name: str) -> Any:
    """Return the class of a message by its full name, for instance
    `inference.ModelInferRequest`.
    """
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(name))
