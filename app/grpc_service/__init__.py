"""The Open Inference Protocol over gRPC, beside HTTP on a port of its own.

Start reading in `server.py`: a call is a request to an ASGI application.
`inference.binpb` is generated from the `.proto` files; `messages.py` says how.
May import the rooms that `app/routes` may, and `app/routes`. Only this folder imports grpcio.
"""
