"""TLS of the gRPC server."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..arguments import checked


@checked
@dataclass(frozen=True, kw_only=True)
class TLS:
    """TLS of the gRPC server, from PEM files, which are read when the server starts."""

    certificate: str | Path
    """File with the certificate of the server, followed by intermediate certificates."""
    key: str | Path
    """File with the private key of the certificate."""
    client_ca: str | Path | None = None
    """File with the certificates that sign the certificates of clients. Clients without such a certificate are refused
    (mTLS). Default None: clients need no certificate."""
