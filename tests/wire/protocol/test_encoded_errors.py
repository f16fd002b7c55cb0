"""Every error as each dialect writes it, and as its official types read it."""

from __future__ import annotations

import json
from typing import Any

from a2a.compat.v0_3 import types
from fasta2a import schema
from inline_snapshot import snapshot
from pydantic import BaseModel, TypeAdapter

from pydantic_ai_a2a import errors
from pydantic_ai_a2a.errors import A2AError, ExtensionSupportRequiredError
from pydantic_ai_a2a.wire.protocol.fasta2a_dialect import FastA2ADialect
from pydantic_ai_a2a.wire.protocol.v0_3 import V0_3
from pydantic_ai_a2a.wire.protocol.v1_0 import V1_0

from ...cases import each_case

PUBLIC: list[Any] = [getattr(errors, name) for name in errors.__all__]
ERRORS: list[type[A2AError]] = [error for error in PUBLIC if issubclass(error, A2AError)]


def older_code(error: type[A2AError]) -> int:
    """The code in 0.3 and FastA2A's dialect, which lack the error of a required extension."""
    return -32600 if error is ExtensionSupportRequiredError else error.code


def test_every_error_has_code_message_reason_and_correlation_id() -> None:
    codes_and_reasons: dict[str, tuple[int, str]] = {}
    for error in ERRORS:
        written = json.loads(V1_0().encode_error(error(), 'corr'))
        assert written.keys() == {'code', 'message', 'data'}
        assert written['message']
        assert written['data'][0]['metadata'] == {'correlationId': 'corr'}
        codes_and_reasons[error.__name__] = written['code'], written['data'][0]['reason']

    assert codes_and_reasons == snapshot(
        {
            'A2AError': (-32603, 'INTERNAL_ERROR'),
            'AgentUnavailable': (-32000, 'UNAVAILABLE'),
            'AgentUnusable': (-32603, 'INTERNAL_ERROR'),
            'BeingErased': (-32000, 'UNAVAILABLE'),
            'ContentTypeNotSupportedError': (-32005, 'CONTENT_TYPE_NOT_SUPPORTED'),
            'ExtendedAgentCardNotConfiguredError': (-32007, 'EXTENDED_AGENT_CARD_NOT_CONFIGURED'),
            'ExtensionSupportRequiredError': (-32008, 'EXTENSION_SUPPORT_REQUIRED'),
            'InternalError': (-32603, 'INTERNAL_ERROR'),
            'InvalidParamsError': (-32602, 'INVALID_PARAMS'),
            'InvalidRequestError': (-32600, 'INVALID_REQUEST'),
            'JSONParseError': (-32700, 'PARSE_ERROR'),
            'MethodNotAllowedError': (-32601, 'METHOD_NOT_FOUND'),
            'MethodNotFoundError': (-32601, 'METHOD_NOT_FOUND'),
            'MisdirectedRequestError': (-32600, 'INVALID_REQUEST'),
            'NotFoundError': (-32601, 'METHOD_NOT_FOUND'),
            'OverloadedError': (-32000, 'UNAVAILABLE'),
            'PayloadTooLargeError': (-32600, 'INVALID_REQUEST'),
            'PermissionDeniedError': (-32000, 'PERMISSION_DENIED'),
            'PrivateAddressError': (-32602, 'INVALID_PARAMS'),
            'PushNotificationNotSupportedError': (-32003, 'PUSH_NOTIFICATION_NOT_SUPPORTED'),
            'QuotaExceededError': (-32000, 'RESOURCE_EXHAUSTED'),
            'RequestTimeoutError': (-32600, 'INVALID_REQUEST'),
            'StoreUnavailable': (-32000, 'UNAVAILABLE'),
            'TaskNotCancelableError': (-32002, 'TASK_NOT_CANCELABLE'),
            'TaskNotFoundError': (-32001, 'TASK_NOT_FOUND'),
            'UnauthenticatedError': (-32000, 'UNAUTHENTICATED'),
            'UnsupportedMediaTypeError': (-32600, 'INVALID_REQUEST'),
            'UnsupportedOperationError': (-32004, 'UNSUPPORTED_OPERATION'),
            'VersionNotSupportedError': (-32009, 'VERSION_NOT_SUPPORTED'),
        }
    )


OFFICIAL_TYPES: dict[int, type[BaseModel]] = {
    -32700: types.JSONParseError,
    -32600: types.InvalidRequestError,
    -32601: types.MethodNotFoundError,
    -32602: types.InvalidParamsError,
    -32603: types.InternalError,
    -32001: types.TaskNotFoundError,
    -32002: types.TaskNotCancelableError,
    -32003: types.PushNotificationNotSupportedError,
    -32004: types.UnsupportedOperationError,
    -32005: types.ContentTypeNotSupportedError,
}


@each_case('error', ERRORS)
def test_official_sdk_reads_every_0_3_error(error: type[A2AError]) -> None:
    body = V0_3().encode_error(error(), 'corr')
    read = OFFICIAL_TYPES.get(older_code(error), types.JSONRPCError).model_validate_json(body)

    assert read.model_dump(mode='json', by_alias=True, exclude_unset=True) == json.loads(body)
    assert json.loads(body)['code'] == older_code(error)
    types.JSONRPCErrorResponse.model_validate_json(b'{"jsonrpc":"2.0","id":"x","error":%s}' % body)


FASTA2A_TYPES: dict[int, Any] = {
    -32700: schema.JSONParseError,
    -32600: schema.InvalidRequestError,
    -32601: schema.MethodNotFoundError,
    -32602: schema.InvalidParamsError,
    -32603: schema.InternalError,
    -32001: schema.TaskNotFoundError,
    -32002: schema.TaskNotCancelableError,
    -32003: schema.PushNotificationNotSupportedError,
    -32004: schema.UnsupportedOperationError,
    -32005: schema.ContentTypeNotSupportedError,
}


@each_case('error', ERRORS)
def test_fasta2a_reads_every_error_with_its_detail(error: type[A2AError]) -> None:
    body = FastA2ADialect().encode_error(error(), 'corr')
    written, own_text = json.loads(body), error().message.removesuffix('.')

    assert written['code'] == older_code(error)
    answer, reader = b'{"jsonrpc":"2.0","id":"x","error":%s}' % body, schema.send_message_response_ta
    assert reader.dump_python(reader.validate_json(answer), mode='json', by_alias=True) == json.loads(answer)
    if written['code'] in FASTA2A_TYPES:  # which also pin the message
        TypeAdapter[Any](FASTA2A_TYPES[written['code']]).validate_json(body)
    else:
        assert written['message'] == own_text
    assert written.get('data') == (None if own_text == written['message'] else {'detail': error().message})
