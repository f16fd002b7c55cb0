"""The signed forms of an agent card.

All are canonical JSON (§8.4.1, RFC 8785). Some signers sign the JSON of a card as it is. Others sign the fields of A2A
1.0 without default values, as the text of the specification wants it. The official SDK leaves out each empty value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, cast

import rfc8785

_MAX_DEPTH = 128
_EXACT = 2**53

Reader: TypeAlias = Callable[[object, str], Any]

_OPTIONAL = frozenset(
    [
        *('securitySchemes', 'securityRequirements', 'schemes', 'list', 'tenant', 'extensions', 'uri', 'required'),
        *('bearerFormat', 'oauth2MetadataUrl', 'refreshUrl', 'pkceRequired', 'examples', 'inputModes', 'outputModes'),
    ]
)


class NotSignable(ValueError):
    """The card has no canonical form; the text names the place."""


def everything(card: Mapping[str, object]) -> dict[str, Any]:
    """Return a card as it is, without signatures.

    Raises:
        NotSignable: A number is beyond the range of a double.
    """
    return _any({name: value for name, value in card.items() if name != 'signatures'}, 'the card')


def known_fields(card: object) -> dict[str, Any]:
    """Return a card with its known fields alone, without signatures and the default values of optional fields.

    Raises:
        NotSignable: A field has the wrong type.
    """
    return {name: value for name, value in _message('AgentCard')(card, '').items() if name != 'signatures'}


def signed_content(card: object) -> dict[str, Any]:
    """Return the part of a card that a signature of the official SDK covers: its known fields without empty values.

    Raises:
        NotSignable: A field has the wrong type, or the card is nested too deeply.
    """
    return without_empty(known_fields(card)) or {}


def canonical(content: Mapping[str, Any]) -> bytes:
    """Return the canonical JSON of signed content.

    Raises:
        NotSignable: A text is not Unicode.
    """
    try:
        return rfc8785.dumps(cast('dict[str, Any]', content))
    except rfc8785.CanonicalizationError as error:
        raise NotSignable(f'the card has no canonical form: {error}') from None


def _text(value: object, place: str) -> str:
    if not isinstance(value, str):
        raise NotSignable(f'{place} is not a string')
    return value


def _flag(value: object, place: str) -> bool:
    if not isinstance(value, bool):
        raise NotSignable(f'{place} is not true or false')
    return value


def _any(value: object, place: str) -> Any:
    """Return a value of `params`. Numbers are doubles, as in the protocol's data model."""
    if isinstance(value, Mapping):
        return {name: _any(item, place) for name, item in cast('Mapping[str, object]', value).items()}
    if isinstance(value, list):
        return [_any(item, place) for item in cast('list[object]', value)]
    is_large = isinstance(value, int) and not isinstance(value, bool) and not -_EXACT < value < _EXACT
    try:
        return float(cast('int', value)) if is_large else value
    except OverflowError:
        raise NotSignable(f'{place} has a number beyond the range of a double') from None


def _object(value: object, place: str) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise NotSignable(f'{place} is not an object')
    return cast('Mapping[str, object]', value)


def _struct(value: object, place: str) -> Any:
    return _any(_object(value, place), place)


def _list(item: Reader) -> Reader:
    def read(value: object, place: str) -> Any:
        if not isinstance(value, list):
            raise NotSignable(f'{place} is not a list')
        return [item(entry, f'{place}[{n}]') for n, entry in enumerate(cast('list[object]', value))]

    return read


def _map(item: Reader) -> Reader:
    def read(value: object, place: str) -> Any:
        return {name: item(entry, f'{place}.{name}') for name, entry in _object(value, place).items()}

    return read


def _message(name: str) -> Reader:
    def read(value: object, place: str) -> Any:
        wire = _object(value, place or 'the card')
        fields: dict[str, Any] = {}
        for field, reader in FIELDS[name].items():
            if wire.get(field) is not None:
                fields[field] = reader(wire[field], f'{place}.{field}'.removeprefix('.'))
        return {field: entry for field, entry in fields.items() if entry or not is_optional(name, field)}

    return read


def is_optional(message: str, field: str) -> bool:
    """Return True for a field that is neither required nor `optional`: its default value means that it is absent."""
    is_described = field == 'description' and message not in ('AgentCard', 'AgentSkill')
    return field in _OPTIONAL or is_described or message in ('ImplicitOAuthFlow', 'PasswordOAuthFlow')


def _flow(*urls: str) -> dict[str, Reader]:
    return {**dict.fromkeys((*urls, 'refreshUrl'), _text), 'scopes': _map(_text)}


def _scheme(*fields: str) -> dict[str, Reader]:
    return dict.fromkeys(('description', *fields), _text)


FIELDS: Mapping[str, Mapping[str, Reader]] = {
    'AgentCard': {
        'name': _text,
        'description': _text,
        'supportedInterfaces': _list(_message('AgentInterface')),
        'provider': _message('AgentProvider'),
        'version': _text,
        'documentationUrl': _text,
        'capabilities': _message('AgentCapabilities'),
        'securitySchemes': _map(_message('SecurityScheme')),
        'securityRequirements': _list(_message('SecurityRequirement')),
        'defaultInputModes': _list(_text),
        'defaultOutputModes': _list(_text),
        'skills': _list(_message('AgentSkill')),
        'iconUrl': _text,
    },
    'AgentInterface': dict.fromkeys(('url', 'protocolBinding', 'tenant', 'protocolVersion'), _text),
    'AgentProvider': dict.fromkeys(('url', 'organization'), _text),
    'AgentCapabilities': {
        'streaming': _flag,
        'pushNotifications': _flag,
        'extensions': _list(_message('AgentExtension')),
        'extendedAgentCard': _flag,
    },
    'AgentExtension': {'uri': _text, 'description': _text, 'required': _flag, 'params': _struct},
    'SecurityScheme': {
        'apiKeySecurityScheme': _message('APIKeySecurityScheme'),
        'httpAuthSecurityScheme': _message('HTTPAuthSecurityScheme'),
        'oauth2SecurityScheme': _message('OAuth2SecurityScheme'),
        'openIdConnectSecurityScheme': _message('OpenIdConnectSecurityScheme'),
        'mtlsSecurityScheme': _message('MutualTlsSecurityScheme'),
    },
    'APIKeySecurityScheme': _scheme('location', 'name'),
    'HTTPAuthSecurityScheme': _scheme('scheme', 'bearerFormat'),
    'OAuth2SecurityScheme': {**_scheme('oauth2MetadataUrl'), 'flows': _message('OAuthFlows')},
    'OpenIdConnectSecurityScheme': _scheme('openIdConnectUrl'),
    'MutualTlsSecurityScheme': _scheme(),
    'OAuthFlows': {
        'authorizationCode': _message('AuthorizationCodeOAuthFlow'),
        'clientCredentials': _message('ClientCredentialsOAuthFlow'),
        'implicit': _message('ImplicitOAuthFlow'),
        'password': _message('PasswordOAuthFlow'),
        'deviceCode': _message('DeviceCodeOAuthFlow'),
    },
    'AuthorizationCodeOAuthFlow': {**_flow('authorizationUrl', 'tokenUrl'), 'pkceRequired': _flag},
    'ClientCredentialsOAuthFlow': _flow('tokenUrl'),
    'ImplicitOAuthFlow': _flow('authorizationUrl'),
    'PasswordOAuthFlow': _flow('tokenUrl'),
    'DeviceCodeOAuthFlow': _flow('deviceAuthorizationUrl', 'tokenUrl'),
    'SecurityRequirement': {'schemes': _map(_message('StringList'))},
    'StringList': {'list': _list(_text)},
    'AgentSkill': {
        'id': _text,
        'name': _text,
        'description': _text,
        'tags': _list(_text),
        'examples': _list(_text),
        'inputModes': _list(_text),
        'outputModes': _list(_text),
        'securityRequirements': _list(_message('SecurityRequirement')),
    },
}
"""The messages of the card with their fields, as in the protocol's a2a.proto."""


def without_empty(value: Any, depth: int = 1) -> Any:
    """Return a value without empty and null values at any depth; None if nothing is left.

    Raises:
        NotSignable: The value is nested too deeply.
    """
    if isinstance(value, dict | list) and depth > _MAX_DEPTH:
        raise NotSignable(f'the card is nested deeper than {_MAX_DEPTH} levels')
    if isinstance(value, dict):
        items = {name: without_empty(item, depth + 1) for name, item in cast('dict[str, Any]', value).items()}
        return {name: item for name, item in items.items() if item is not None} or None
    if isinstance(value, list):
        entries = [without_empty(item, depth + 1) for item in cast('list[Any]', value)]
        return [item for item in entries if item is not None] or None
    return None if value == '' else value
