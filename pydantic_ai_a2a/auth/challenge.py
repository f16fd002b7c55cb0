"""What `WWW-Authenticate` says of the schemes that a server takes (RFC 9110 §11.6, RFC 6750 §3). Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from fasta2a.schema import SecurityScheme

__all__ = ('challenges',)

_REALM = 'realm="a2a"'
_UNQUOTABLE = re.compile(r'[^ !#-\[\]-~]')


def challenges(schemes: Iterable[tuple[SecurityScheme, Mapping[str, str]]]) -> str:
    """The header's value: each scheme of HTTP once, in order; empty if there is none, as for certificates.

    Args:
        schemes: What the card declares, each with what is wrong about its credentials: names and values of parameters.
    """
    found: dict[str, str] = {}
    for scheme, errors in schemes:
        name, parameters = _challenge(scheme)
        if name and (errors or name not in found):
            found[name] = ', '.join([*parameters, *(_parameter(*each) for each in errors.items())])
    return ', '.join(f'{name} {parameters}' for name, parameters in found.items())


def _challenge(scheme: SecurityScheme) -> tuple[str, list[str]]:
    """The name and the parameters of a scheme's challenge; no name for what is not asked for by HTTP."""
    if 'http_auth_security_scheme' in scheme:
        return scheme['http_auth_security_scheme']['scheme'], [_REALM]
    if 'api_key_security_scheme' in scheme:
        key = scheme['api_key_security_scheme']
        return 'ApiKey', [_REALM, _parameter('in', key['location']), _parameter('name', key['name'])]
    return '' if 'mtls_security_scheme' in scheme else 'Bearer', [_REALM]


def _parameter(name: str, value: str) -> str:
    """A parameter of a challenge; what cannot stand between quotes is not there."""
    return f'{name}="{_UNQUOTABLE.sub("", value)}"'
