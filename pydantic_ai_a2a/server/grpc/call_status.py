"""The end of a refused gRPC call: an error in gRPC's form.

It is a status code, and a `google.rpc.Status` with details in the trailing metadata (§10.6).
"""

from __future__ import annotations

from typing import Any

from google.protobuf import any_pb2, json_format
from google.rpc import error_details_pb2, status_pb2
from grpc import StatusCode
from pydantic_core import from_json, to_json

from ...errors import A2AError, PayloadTooLargeError
from ...wire.protocol.codec import HttpCodec

_DETAILS = 'grpc-status-details-bin'
_MAX_TEXT = 1_000
"""Most characters of a text. By default, clients refuse metadata of more than 8 KB, text and details together."""
_MAX_DETAIL = 2_000
"""Most bytes of a detail, as JSON."""

_ = error_details_pb2  # registers the messages of the details


def refusal_of(
    error: A2AError, codec: HttpCodec, correlation_id: str
) -> tuple[StatusCode, str, tuple[tuple[str, str | bytes], ...]]:
    """Return the end of a call that an error refuses: the status, the text and the trailing metadata.

    Args:
        error: The error.
        codec: The codec with the details of errors.
        correlation_id: Names the call in the logs.
    """
    status = StatusCode.RESOURCE_EXHAUSTED if isinstance(error, PayloadTooLargeError) else StatusCode[error.status]
    described = from_json(codec.encode_status(error, correlation_id))['error']
    text = described['message'][:_MAX_TEXT]
    details = [json_format.ParseDict(_shortened(detail), any_pb2.Any()) for detail in described['details']]
    message = status_pb2.Status(code=status.value[0], message=text, details=details)
    trailing: list[tuple[str, str | bytes]] = [(name.lower(), value) for name, value in error.headers.items()]
    return status, text, (('x-correlation-id', correlation_id), (_DETAILS, message.SerializeToString()), *trailing)


def _shortened(detail: dict[str, Any]) -> dict[str, Any]:
    """Return a detail with only as many bad fields as fit."""
    violations: list[Any] = detail.get('fieldViolations', [])
    while violations and len(to_json(detail)) > _MAX_DETAIL:
        del violations[len(violations) // 2 :]
    return detail
