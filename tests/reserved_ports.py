"""Ports of this machine for servers that a test starts later."""

from __future__ import annotations

import socket

__all__ = ('port_of', 'reserved_port')


def reserved_port(shared_by: int = socket.SO_REUSEADDR) -> socket.socket:
    """A port where nobody listens yet, and which no process gets but servers that set the same option.

    uvicorn sets `SO_REUSEADDR`, and gRPC sets `SO_REUSEPORT`.
    """
    reserved = socket.socket()
    reserved.setsockopt(socket.SOL_SOCKET, shared_by, 1)
    reserved.bind(('127.0.0.1', 0))
    return reserved


def port_of(reserved: socket.socket) -> int:
    """The number of a port."""
    port: int = reserved.getsockname()[1]
    return port
