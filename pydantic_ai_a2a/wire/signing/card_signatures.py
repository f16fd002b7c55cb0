"""Signs agent cards (§8.4), and refuses values that a signature would not cover."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from itertools import zip_longest
from typing import Any, cast

from .canonical_cards import canonical, known_fields, signed_content, without_empty
from .jws import Signer

_REQUIREMENTS = 'securityRequirements'
_ANNOTATIONS = frozenset({'default', 'examples'})
"""Keywords that a JSON Schema may lose: they describe, and do not restrict."""
_MAY_BE_EMPTY = frozenset({'$defs', 'additionalProperties', 'items', 'properties', 'required'})
"""Keywords that mean the same in a JSON Schema if they are empty as if they are absent."""

CARD_DIGEST = 'card_sha256'
"""The SHA-256 of the whole card, in hexadecimal digits, in the protected header of each signature."""


def sign_card(wire: Mapping[str, Any], signer: Signer) -> dict[str, Any]:
    """Return a card of A2A 1.0 with signatures, and without unknown fields and default values.

    Verifiers read §8.4.1 in two ways: the official SDK leaves out all empty values, and the text keeps some. So the
    card loses empty keywords of the JSON Schemas of its extensions, and only security requirements without scopes may
    be empty. A card with such requirements has signatures of both forms.

    The SDK's form does not cover these requirements. So the protected header of each signature has a digest of the
    whole card: whoever reads the digest finds each added, removed or changed requirement.

    Raises:
        ValueError: Another value is empty.
    """
    card = known_fields(wire)
    for extension in card.get('capabilities', {}).get('extensions', ()):
        if 'params' in extension:
            extension['params'] = _without_empty_keywords(extension['params'])
    content = signed_content(card)
    if (place := lost(_without_requirements(card), _without_requirements(content), '')) is not None:
        raise ValueError(
            f'The agent card cannot be signed, because {place} is empty, and verifiers leave out empty values. Give '
            f'{place} a value, or remove {place}.'
        )
    payloads = dict.fromkeys((canonical(card), canonical(content)))
    digest = {CARD_DIGEST: card_digest(card)}
    signatures = [signature for payload in payloads for signature in signer.signatures(payload, **digest)]
    return {**card, 'signatures': signatures}


def card_digest(whole: Mapping[str, Any]) -> str:
    """Return the digest of a whole card, as `known_fields` returns it."""
    return sha256(canonical(whole)).hexdigest()


def _without_empty_keywords(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_empty_keywords(item) for item in cast('list[Any]', value)]
    if not isinstance(value, dict):
        return value
    members = {name: _without_empty_keywords(item) for name, item in cast('dict[str, Any]', value).items()}
    return {name: item for name, item in members.items() if not _may_go(name, item)}


def _may_go(keyword: str, value: Any) -> bool:
    if keyword in _ANNOTATIONS:
        return value is None or without_empty(value) != value
    return keyword in _MAY_BE_EMPTY and value in ([], {})


def lost(card: Any, content: Any, place: str) -> str | None:
    """Return the place of the first value of a card that is not in a content; None if all values are."""
    if isinstance(card, dict) and card:
        fields, parts = cast('dict[str, Any]', card), cast('dict[str, Any]', content or {})
        pairs = [(f'{place}.{name}'.removeprefix('.'), value, parts.get(name)) for name, value in fields.items()]
    elif isinstance(card, list) and card:
        entries = zip_longest(cast('list[Any]', card), cast('list[Any]', content or []))
        pairs = [(f'{place}[{n}]', value, part) for n, (value, part) in enumerate(entries)]
    else:
        return place if card is None or card != content else None
    return next((found for at, value, part in pairs if (found := lost(value, part, at)) is not None), None)


def _without_requirements(card: Mapping[str, Any]) -> dict[str, Any]:
    skills = [
        {name: value for name, value in skill.items() if name != _REQUIREMENTS} for skill in card.get('skills', ())
    ]
    return {name: value for name, value in card.items() if name != _REQUIREMENTS} | {'skills': skills}
