"""Security schemes and requirements in the shapes of A2A 1.0 and 0.3. Pure; knows nothing else of the card (§4.5).

The shapes share one object, as in the official SDK's cards: 0.3 has the fields beside a `type`, 1.0 under a key that is
the type. So both must say the same, for a client may read either.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from fasta2a.schema import SecurityScheme

__all__ = ('check_schemes', 'dump_requirements', 'dump_scheme')

_TYPES = {
    'apiKeySecurityScheme': 'apiKey',
    'httpAuthSecurityScheme': 'http',
    'oauth2SecurityScheme': 'oauth2',
    'openIdConnectSecurityScheme': 'openIdConnect',
    'mtlsSecurityScheme': 'mutualTLS',
}
"""The type that 0.3 gives to what 1.0 has under a key."""

_LOCATIONS = ('header', 'query', 'cookie')


def check_schemes(schemes: Mapping[str, SecurityScheme]) -> None:
    """Refuse what the TypedDicts allow and some client's parser does not: it would refuse the whole card.

    Raises:
        ValueError: A scheme is none or several, has no or several OAuth flows, or an unknown place of its API key.
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
    """A scheme of 1.0, as JSON, in the shapes of the versions."""
    [(kind, given)] = scheme.items()
    fields = {name: _dump_flows(value) if name == 'flows' else value for name, value in given.items()}
    flat = {'in' if name == 'location' else name: value for name, value in fields.items()}
    newer, older = {kind: fields}, {'type': _TYPES[kind], **flat}
    return {**(newer if '1.0' in versions else {}), **(older if '0.3' in versions else {})}


def _dump_flows(flows: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Flows with the scopes that FastA2A leaves optional."""
    return {name: {'scopes': {}, **flow} for name, flow in flows.items()}


def dump_requirements(requirements: Sequence[Mapping[str, Any]], versions: Collection[str]) -> dict[str, Any]:
    """FastA2A's requirements under the keys of the versions; FastA2A itself lacks 1.0's `list`."""
    alternatives: list[Mapping[str, list[str]]] = [each['schemes'] for each in requirements]
    lists = [{name: {'list': scopes} for name, scopes in each.items()} for each in alternatives]
    newer, older = {'securityRequirements': [{'schemes': each} for each in lists]}, {'security': alternatives}
    return {**(newer if '1.0' in versions else {}), **(older if '0.3' in versions else {})}
