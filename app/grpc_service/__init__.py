"""The Open Inference Protocol over gRPC, beside HTTP on a port of its own.

Start reading in `server.py`: each call becomes a request for `/v2` of the same application.
`inference.binpb` is generated from the `.proto` files; `messages.py` says how.
Only this folder imports grpcio.
"""
