"""The Open Inference Protocol over gRPC, spoken by Triton's own client, beside its HTTP client.

The servers are processes of their own, because grpcio's client and server with event loops of
their own do not share one well.
"""

import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import tritonclient.grpc as over_grpc
import tritonclient.http as over_http
from tritonclient.grpc import service_pb2
from tritonclient.utils import InferenceServerException

from tests.e2e.test_inference_protocol import FILES, files, pixels, preprocessed, tensor
from tests.pictures import png
from tests.ports import free_port
from tests.server import COLD, PATIENCE, Served, serving

FLAGS = ("--weights", "random", "--precision", "fp32", "--log-level", "error")
METHOD = "/inference.GRPCInferenceService/ModelInfer"


@dataclass(frozen=True, slots=True)
class Both:
    """A server with both ports, and a client for each."""

    server: Served
    port: int
    rpc: over_grpc.InferenceServerClient
    http: over_http.InferenceServerClient


@pytest.fixture(scope="module")
def both() -> Iterator[Both]:
    port = free_port()
    flags = (*FLAGS, "--grpc-port", str(port), "--default-deadline", "100")
    with (
        serving(*flags, program=COLD) as server,
        over_grpc.InferenceServerClient(f"127.0.0.1:{port}") as rpc,
        over_http.InferenceServerClient(f"127.0.0.1:{server.port}") as http,
    ):
        yield Both(server, port, rpc, http)


def test_health_and_metadata_are_those_of_http(both: Both) -> None:
    assert both.rpc.is_server_live()
    assert both.rpc.is_server_ready()
    assert both.rpc.is_model_ready("resnet18", "1")
    assert both.rpc.get_server_metadata().name == "darkroom"
    for name in ("resnet18", "resnet18_embedding"):
        found = both.rpc.get_model_metadata(name, as_json=True)
        expected = both.http.get_model_metadata(name)
        for tensors in ("inputs", "outputs"):
            for each in found[tensors]:
                each["shape"] = [int(length) for length in each["shape"]]
            assert found.pop(tensors) == expected.pop(tensors)
        assert found == expected
    for call in (both.rpc.is_model_ready, both.rpc.get_model_metadata):
        with pytest.raises(InferenceServerException, match="there is no model") as told:
            call("vgg")
        assert told.value.status() == "StatusCode.NOT_FOUND"


def test_all_inputs_have_the_values_of_http(both: Both) -> None:
    for model in ["resnet18", "resnet18_embedding"]:
        given: list[tuple[str, Any]] = [("IMAGE", FILES)]
        given.append(("PIXELS", np.stack([pixels(png())] * 2)))
        given.append(("INPUT", np.stack([preprocessed(png())] * 2)))
        for name, values in given:
            found = []
            for module, client in ((over_grpc, both.rpc), (over_http, both.http)):
                asked = files(values, module) if name == "IMAGE" else tensor(name, values, module)
                found.append(client.infer(model, [asked], request_id="mine"))
            rpc, http = found
            for output in http.get_response()["outputs"]:
                one, other = (each.as_numpy(output["name"]) for each in found)
                assert (one == other).all(), (name, output)
            response = rpc.get_response()
            assert (response.id, response.model_name) == ("mine", model)
            parameters = http.get_response()["parameters"]
            assert (
                response.parameters["weights_sha256"].string_param == parameters["weights_sha256"]
            )


def typed(name: str, datatype: str, shape: list[int], **contents: Any) -> Any:
    asked = service_pb2.ModelInferRequest(model_name="resnet18")
    given = asked.inputs.add(name=name, datatype=datatype, shape=shape)
    for field, values in contents.items():
        getattr(given.contents, field).extend(values)
    return asked


def called(port: int, asked: Any, **options: Any) -> Any:
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        call = channel.unary_unary(
            METHOD, type(asked).SerializeToString, service_pb2.ModelInferResponse.FromString
        )
        return call.with_call(asked, timeout=PATIENCE, **options)


def test_values_in_typed_fields_are_those_of_raw_tensors(both: Both) -> None:
    samples, inputs = pixels(png()), preprocessed(png())
    for name, values, field, datatype in (
        ("PIXELS", samples[None], "uint_contents", "UINT8"),
        ("INPUT", inputs[None], "fp32_contents", "FP32"),
    ):
        shape = list(values.shape)
        flat = values.reshape(-1).tolist()
        reply, _ = called(both.port, typed(name, datatype, shape, **{field: flat}))
        expected = both.rpc.infer("resnet18", [tensor(name, values, over_grpc)])
        raw = expected.get_response().raw_output_contents
        assert list(reply.raw_output_contents) == list(raw)
        with pytest.raises(grpc.RpcError, match=field):
            called(both.port, typed(name, datatype, shape, **{field: flat[:-1]}))
    reply, call = called(both.port, typed("IMAGE", "BYTES", [1], bytes_contents=[FILES[0]]))
    expected = both.rpc.infer("resnet18", [files(FILES[:1], over_grpc)])
    assert reply.raw_output_contents[1] == expected.get_response().raw_output_contents[1]
    assert len(dict(call.trailing_metadata())["x-request-id"]) == 32
    _, call = called(
        both.port,
        typed("IMAGE", "BYTES", [1], bytes_contents=[FILES[0]]),
        metadata=[("x-request-id", "mine")],
    )
    assert dict(call.trailing_metadata())["x-request-id"] == "mine"


def test_a_wrong_request_is_an_invalid_argument(both: Both) -> None:
    for asked, words in [
        (typed("IMAGE", "FP32", [1]), "datatype"),
        (typed("IMAGE", "BYTES", [2], bytes_contents=[b"a"]), "bytes_contents has 1"),
        (typed("PIXELS", "UINT8", [1, 1, 1, 3], uint_contents=[1, 2, 300]), "0 to 255"),
        (typed("IMAGE", "BYTES", [0]), "no images"),
        (service_pb2.ModelInferRequest(model_name="resnet18"), "0 inputs"),
        (
            service_pb2.ModelInferRequest(
                model_name="resnet18",
                inputs=typed("IMAGE", "BYTES", [1]).inputs,
                raw_input_contents=[b"\xff\0\0\0abc"],
            ),
            "beyond",
        ),
    ]:
        with pytest.raises(grpc.RpcError, match=words) as told:
            called(both.port, asked)
        assert told.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_what_is_no_message_or_too_large_or_too_late_has_a_status(both: Both) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{both.port}") as channel:
        for body, code in (
            (b"\xff\xff\xff", grpc.StatusCode.INVALID_ARGUMENT),
            (b"\x0a\x08resnet18" + b"\x2a\x00" * 10_000, grpc.StatusCode.INVALID_ARGUMENT),
            (b"\x3a" + bytes((8 << 20) + 1), grpc.StatusCode.RESOURCE_EXHAUSTED),
        ):
            with pytest.raises(grpc.RpcError) as told:
                channel.unary_unary(METHOD)(body, timeout=PATIENCE)
            assert told.value.code() is code
            named = code is grpc.StatusCode.INVALID_ARGUMENT
            assert len(dict(told.value.trailing_metadata()).get("x-request-id", "")) == 32 * named
        with pytest.raises(grpc.RpcError) as told:
            channel.unary_unary("/inference.GRPCInferenceService/ModelConfig")(b"")
        assert told.value.code() is grpc.StatusCode.UNIMPLEMENTED
    given = [files(FILES, over_grpc)]
    for more in ({"timeout": 1}, {"headers": {"x-deadline-ms": "1"}}, {"client_timeout": 0.001}):
        with pytest.raises(InferenceServerException) as late:
            both.rpc.infer("resnet18", given, **more)
        codes = ("StatusCode.DEADLINE_EXCEEDED", "StatusCode.RESOURCE_EXHAUSTED")
        assert late.value.status() in codes


@pytest.mark.slow
def test_keys_rates_and_the_end_are_those_of_http_with_two_front_ends(tmp_path: Path) -> None:
    keys, port = tmp_path / "keys", free_port()
    keys.write_text("mine:secret\n")
    flags = ("--api-keys-file", str(keys), "--rate-limit", "1/8", "--front-ends", "2")
    given = [files(FILES[:1] * 8, over_grpc)]  # as many as a client may send at once
    with (
        serving(*FLAGS, *flags, "--grpc-port", str(port), "--grace", "0", program=COLD) as server,
        over_grpc.InferenceServerClient(f"127.0.0.1:{port}") as client,
    ):
        assert client.is_model_ready("resnet18")
        with pytest.raises(InferenceServerException, match="API key") as told:
            client.infer("resnet18", given)
        assert told.value.status() == "StatusCode.UNAUTHENTICATED"
        headers = {"authorization": "Bearer secret"}
        assert client.infer("resnet18", given, headers=headers).as_numpy("SCORES") is not None
        asked = typed("IMAGE", "BYTES", [8], bytes_contents=FILES[:1] * 8)
        with pytest.raises(grpc.RpcError, match="images a second") as refused:
            called(port, asked, metadata=[("x-api-key", "secret")])
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        metadata = dict(refused.value.trailing_metadata())
        assert int(metadata["grpc-retry-pushback-ms"]) >= 1000
        assert int(metadata["retry-after"]) >= 1
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(PATIENCE) == 0
