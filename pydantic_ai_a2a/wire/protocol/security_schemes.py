"""Security schemes and requirements of the card, in the shapes of A2A 1.0 and 0.3 (§4.5).

Both shapes share one object, as in the official SDK's cards. 0.3 has the fields besides a `type`, 1.0 has them under
a key for the type. Both shapes have the same content, because a client may read either.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, cast

from ...types.a2a_objects import SecurityScheme

_TYPES = {
    'apiKeySecurityScheme': 'apiKey',
    'httpAuthSecurityScheme': 'http',
    'oauth2SecurityScheme': 'oauth2',
    'openIdConnectSecurityScheme': 'openIdConnect',
    'mtlsSecurityScheme': 'mutualTLS',
}
"""The `type` of 0.3 for each key of 1.0."""

_LOCATIONS = ('header', 'query', 'cookie')

_KINDS = {flat: kind for kind, flat in _TYPES.items()}


def check_schemes(schemes: Mapping[str, SecurityScheme]) -> None:
    """Refuse schemes that the TypedDicts allow, but for which a client's parser refuses the whole card.

    Raises:
        ValueError: A scheme has no kind or several, no OAuth flow or several, or an unknown location of its API key.
    """
    for name, scheme in schemes.items():
        what = f'security_schemes[{name!r}]'
        _check_one(what, scheme)
        if (oauth2 := scheme.get('oauth2_security_scheme')) is not None:
            _check_one(f'{what} flows', oauth2.get('flows', {}))
        key = scheme.get('api_key_security_scheme')
        if key is not None and key['location'] not in _LOCATIONS:
            raise ValueError(f'{what} location must be one of {", ".join(_LOCATIONS)}, not {key["location"]!r}.')


def _check_one(what: str, union: Mapping[str, Any]) -> None:
    if len(union) != 1:
        raise ValueError(f'{what} must have exactly one kind, not {", ".join(union) or "none"}.')


def dump_scheme(scheme: Mapping[str, Mapping[str, Any]], versions: Collection[str]) -> dict[str, Any]:
    """Return a scheme of 1.0 as JSON, in the shapes of the versions."""
    [(kind, content)] = scheme.items()
    fields = {name: _dump_flows(value) if name == 'flows' else value for name, value in content.items()}
    flat = {'in' if name == 'location' else name: value for name, value in fields.items()}
    newer, older = {kind: fields}, {'type': _TYPES[kind], **flat}
    return {**(newer if '1.0' in versions else {}), **(older if '0.3' in versions else {})}


def _dump_flows(flows: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return flows with the scopes that FastA2A leaves optional."""
    return {name: {'scopes': {}, **flow} for name, flow in flows.items()}


def dump_requirements(requirements: Sequence[Mapping[str, Any]], versions: Collection[str]) -> dict[str, Any]:
    """Return FastA2A's requirements under the keys of the versions; FastA2A itself lacks 1.0's `list`."""
    alternatives: list[Mapping[str, list[str]]] = [requirement['schemes'] for requirement in requirements]
    lists = [{name: {'list': scopes} for name, scopes in schemes.items()} for schemes in alternatives]
    newer, older = {'securityRequirements': [{'schemes': schemes} for schemes in lists]}, {'security': alternatives}
    return {**(newer if '1.0' in versions else {}), **(older if '0.3' in versions else {})}


def load_scheme(wire: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a scheme in 1.0's shape from JSON of either version; None for a kind that A2A does not have."""
    for kind in _TYPES:
        if isinstance(content := wire.get(kind), dict):
            return {kind: content}
    kind = _KINDS.get(str(wire.get('type')))
    if kind is None:
        return None
    return {kind: {'location' if name == 'in' else name: value for name, value in wire.items() if name != 'type'}}


def load_requirements(newer: Sequence[Mapping[str, Any]], older: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return requirements in FastA2A's shape, from the field of 1.0 if there is one, else from 0.3's."""
    alternatives: list[Mapping[str, Any]] = [requirement.get('schemes') or {} for requirement in newer] or [*older]
    return [{'schemes': {name: _scopes(scopes) for name, scopes in schemes.items()}} for schemes in alternatives]


def _scopes(value: Any) -> Any:
    return cast('Mapping[str, Any]', value).get('list', []) if isinstance(value, Mapping) else value
