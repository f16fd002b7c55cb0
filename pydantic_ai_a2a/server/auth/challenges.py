"""The value of `WWW-Authenticate` for the schemes of a server (RFC 9110 §11.6, RFC 6750 §3)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from ...types.a2a_objects import SecurityScheme

_REALM = 'realm="a2a"'
_UNQUOTABLE = re.compile(r'[^ !#-\[\]-~]')


def challenges(schemes: Iterable[tuple[SecurityScheme, Mapping[str, str]]]) -> str:
    """Return the header's value with each HTTP scheme once, in order; empty without HTTP schemes, as for certificates.

    Args:
        schemes: The schemes of the card, each with the parameters that describe an error of its credentials.
    """
    challenge_of: dict[str, str] = {}
    for scheme, errors in schemes:
        name, parameters = _challenge(scheme)
        if name and (errors or name not in challenge_of):
            challenge_of[name] = ', '.join([*parameters, *(_parameter(key, value) for key, value in errors.items())])
    return ', '.join(f'{name} {parameters}' for name, parameters in challenge_of.items())


def _challenge(scheme: SecurityScheme) -> tuple[str, list[str]]:
    """Return the name and the parameters of a scheme's challenge; an empty name for a scheme outside HTTP."""
    if 'http_auth_security_scheme' in scheme:
        return scheme['http_auth_security_scheme']['scheme'], [_REALM]
    if 'api_key_security_scheme' in scheme:
        key = scheme['api_key_security_scheme']
        return 'ApiKey', [_REALM, _parameter('in', key['location']), _parameter('name', key['name'])]
    return '' if 'mtls_security_scheme' in scheme else 'Bearer', [_REALM]


def _parameter(name: str, value: str) -> str:
    """Return a parameter of a challenge without the characters that are illegal between quotes."""
    return f'{name}="{_UNQUOTABLE.sub("", value)}"'
