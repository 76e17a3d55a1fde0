"""Bound what clients can make grpcio hold: connections, metadata and messages.

Start reading in `gate.py`, to which clients connect in place of grpcio.
May import what `app/grpc_service` may, and nothing of it but this folder.
"""
