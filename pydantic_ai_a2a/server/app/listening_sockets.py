"""Listening sockets of HTTP servers, and their URLs."""

from __future__ import annotations

import socket

from ...errors import CannotListen


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket. Its protocol is named, because asyncio sets TCP_NODELAY only then.

    Raises:
        CannotListen: The address cannot be used.
    """
    family = socket.AF_INET6 if ':' in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise CannotListen(
            f'Cannot listen on {host} port {port}: {error.strerror}. Choose another port or host.'
        ) from error
    return listener


def url_of(listener: socket.socket, *, tls: bool = False) -> str:
    """Return the URL of a listening socket, with a final slash."""
    host, port = listener.getsockname()[:2]
    return f'{"https" if tls else "http"}://{f"[{host}]" if ":" in host else host}:{port}/'
