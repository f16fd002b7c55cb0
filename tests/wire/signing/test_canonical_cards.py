"""The signed forms of cards: the official SDK's, byte for byte, the text's (§8.4.1), and plain RFC 8785."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from a2a.client.card_resolver import parse_agent_card
from a2a.types import AgentCard
from a2a.utils.signing import create_agent_card_signer
from google.api.field_behavior_pb2 import REQUIRED, field_behavior
from google.protobuf.json_format import ParseDict
from hypothesis import given
from hypothesis import strategies as st
from jwt.utils import base64url_decode
from pydantic_core import from_json

from pydantic_ai_a2a.wire.signing.canonical_cards import (
    FIELDS,
    NotSignable,
    canonical,
    everything,
    is_optional,
    known_fields,
    signed_content,
)
from pydantic_ai_a2a.wire.signing.card_signatures import CARD_DIGEST, card_digest, sign_card
from pydantic_ai_a2a.wire.signing.jws import Signer

from ...cases import each_case
from .signing_keys import private_pem

CARD: dict[str, Any] = {
    'name': 'Wetterfrosch 🐸',
    'description': 'Knows "the weather".',
    'supportedInterfaces': [
        {'url': 'https://x.example/', 'protocolBinding': 'JSONRPC', 'protocolVersion': '1.0', 'tenant': 'acme'}
    ],
    'provider': {'url': 'https://x.example', 'organization': 'X'},
    'version': '1',
    'documentationUrl': 'https://x.example/docs',
    'iconUrl': 'https://x.example/icon',
    'capabilities': {
        'streaming': True,
        'pushNotifications': False,
        'extensions': [
            {'uri': 'https://x.example/e', 'required': True, 'params': {'a': [1, 1.5, 'x', True, {'b': 1e21}], 'ö': 7}}
        ],
    },
    'securitySchemes': {
        'oauth': {
            'oauth2SecurityScheme': {
                'flows': {
                    'authorizationCode': {
                        'authorizationUrl': 'https://x.example/a',
                        'tokenUrl': 'https://x.example/t',
                        'scopes': {'read': 'Read.'},
                        'pkceRequired': True,
                    }
                }
            }
        },
        'key': {'apiKeySecurityScheme': {'name': 'X-Key', 'location': 'header'}},
    },
    'securityRequirements': [{'schemes': {'oauth': {'list': ['read']}}}],
    'defaultInputModes': ['text/plain'],
    'defaultOutputModes': ['text/plain'],
    'skills': [
        {
            'id': 's',
            'name': 'S',
            'description': 'Does s.',
            'tags': ['s'],
            'examples': ['s?'],
            'inputModes': ['text/plain'],
            'outputModes': ['text/plain'],
            'securityRequirements': [{'schemes': {'oauth': {'list': ['read']}}}],
        }
    ],
}
EXAMPLE: dict[str, Any] = {
    'name': 'Example Agent',
    'description': '',
    'capabilities': {'streaming': False, 'pushNotifications': False},
    'skills': [],
}
EXAMPLE_AS_SIGNED = (
    '{"capabilities":{"pushNotifications":false,"streaming":false},"description":"","name":"Example Agent","skills":[]}'
)
SIGNER = Signer([private_pem()], 'signing', 'https://x.example/.well-known/jwks.json')


def official_payload(card: dict[str, Any]) -> bytes:
    """The content that the official SDK signs, which it hands over to PyJWT."""
    contents: list[bytes] = []

    class Spy(str):
        """A key of HMAC, which tells nothing."""

    def encode(payload: bytes, **_: Any) -> str:
        contents.append(payload)
        return '..'

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr('a2a.utils.signing.api_jws.encode', encode)
        header: Any = {'kid': 'k', 'alg': 'HS256', 'jku': None, 'typ': 'JOSE'}
        create_agent_card_signer(Spy('secret'), header)(ParseDict(card, AgentCard(), ignore_unknown_fields=True))
    return contents[0]


def proto_card_fields() -> dict[str, dict[str, Any]]:
    """The fields of the messages of a card."""
    seen: dict[str, dict[str, Any]] = {}

    def walk(message: Any) -> None:
        if message.name in seen or message.file.package != 'lf.a2a.v1':
            return
        seen[message.name] = {field.json_name: field for field in message.fields}
        for field in message.fields:
            if field.message_type is not None:
                walk(field.message_type)

    walk(AgentCard.DESCRIPTOR)
    del seen['AgentCardSignature'], seen['AgentCard']['signatures']
    return {name: fields for name, fields in seen.items() if not name.endswith('Entry')}


def test_known_card_fields_match_the_protocol() -> None:
    messages = proto_card_fields()
    assert {name: {*fields} for name, fields in FIELDS.items()} == {name: {*each} for name, each in messages.items()}


def test_optional_card_fields_match_the_protocol() -> None:
    for name, fields in proto_card_fields().items():
        for field, descriptor in fields.items():
            is_required = REQUIRED in descriptor.GetOptions().Extensions[field_behavior]
            assert is_optional(name, field) is not (is_required or descriptor.has_presence), (name, field)


RFC_8785_CASES: list[tuple[str, dict[str, Any], str]] = [
    ('the example of §8.4.1', EXAMPLE, EXAMPLE_AS_SIGNED),
    (
        'signatures are left out',
        {**EXAMPLE, 'signatures': [{'protected': 'eyJ', 'signature': 'MEU'}]},
        EXAMPLE_AS_SIGNED,
    ),
    ('no signatures are left out', {**EXAMPLE, 'signatures': []}, EXAMPLE_AS_SIGNED),
    (
        'fields that A2A 1.0 does not have',
        {'url': 'https://pay.example/a2a', 'securitySchemes': {'oauth': {'type': 'oauth2'}}, 'name': 'Pay'},
        '{"name":"Pay","securitySchemes":{"oauth":{"type":"oauth2"}},"url":"https://pay.example/a2a"}',
    ),
    ('upper case is before lower case', {'apple': 1, 'Apple': 2}, '{"Apple":2,"apple":1}'),
    ('numbers in names are text', {'10': 1, '2': 2, '1': 3}, '{"1":3,"10":1,"2":2}'),
    ('names are sorted by UTF-16 units', {'b\uff01': 2, 'b\U0001f600': 1}, '{"b\U0001f600":1,"b\uff01":2}'),
    ('and also beside private characters', {'x\ue000': 2, 'x\U00010000': 1}, '{"x\U00010000":1,"x\ue000":2}'),
    ('composed characters are others', {'caf\xe9': 1, 'cafe\u0301': 2}, '{"cafe\u0301":2,"caf\xe9":1}'),
    ('an empty name is the first', {'a': 2, '': 1}, '{"":1,"a":2}'),
    ('text beyond ASCII is not escaped', {'a': 'é 中 \u0627 \x7f \U0001f600'}, '{"a":"é 中 \u0627 \x7f \U0001f600"}'),
    ('text with escapes', {'a': '"q" \\ / \n\t\x01'}, r'{"a":"\"q\" \\ / \n\t\u0001"}'),
    ('integers', {'a': [42, -17, 0, 100, 1.0, 9007199254740991]}, '{"a":[42,-17,0,100,1,9007199254740991]}'),
    ('large integers are doubles', {'a': [2**53 + 1, 10**21]}, '{"a":[9007199254740992,1e+21]}'),
    ('negative zero', {'a': -0.0}, '{"a":0}'),
    ('fractions', {'a': [0.1, 3.14159, -123.456, 0.1 + 0.2]}, '{"a":[0.1,3.14159,-123.456,0.30000000000000004]}'),
    ('exponents', {'a': [1e-6, 1e-7, 1e20, 1e21]}, '{"a":[0.000001,1e-7,100000000000000000000,1e+21]}'),
    ('empty values stay', {'b': {}, 'a': []}, '{"a":[],"b":{}}'),
    ('lists keep their order', {'a': [[2, 1], {'y': [1, {'x': 2}]}]}, '{"a":[[2,1],{"y":[1,{"x":2}]}]}'),
    ('literals', {'a': [True, False, None, 'x']}, '{"a":[true,false,null,"x"]}'),
]
"""What the conformance kits of A2A check of RFC 8785, and of the field `signatures`."""


@each_case('name, card, expected', RFC_8785_CASES)
def test_plain_form_is_rfc_8785_without_signatures(name: str, card: dict[str, Any], expected: str) -> None:
    assert canonical(everything(card)) == expected.encode(), name


@each_case('value', ['\ud800', '\udc00', '\ud800x', float('nan'), float('inf'), float('-inf')])
def test_card_with_non_json_value_has_no_plain_form(value: Any) -> None:
    with pytest.raises(NotSignable):
        canonical(everything({'a': value}))


KNOWN_FIELDS_CASES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({'description': '', 'skills': []}, {'description': '', 'skills': []}),
    ({'capabilities': {'streaming': False, 'extensions': []}}, {'capabilities': {'streaming': False}}),
    ({'iconUrl': '', 'documentationUrl': None}, {'iconUrl': ''}),
    ({'securitySchemes': {}, 'securityRequirements': []}, {}),
    (
        {'securityRequirements': [{'schemes': {'bearer': {'list': []}}}, {'schemes': {}}]},
        {'securityRequirements': [{'schemes': {'bearer': {}}}, {}]},
    ),
    (
        {'securitySchemes': {'mtls': {'mtlsSecurityScheme': {'description': ''}}}},
        {'securitySchemes': {'mtls': {'mtlsSecurityScheme': {}}}},
    ),
    ({'supportedInterfaces': [{'url': '', 'tenant': ''}]}, {'supportedInterfaces': [{'url': ''}]}),
    ({'url': 'https://x', 'signatures': []}, {}),
]


@each_case('card, expected', KNOWN_FIELDS_CASES)
def test_known_fields_drop_only_empty_optional_fields(card: dict[str, Any], expected: dict[str, Any]) -> None:
    assert known_fields(card) == expected


def test_full_card_is_canonicalized_like_official_sdk() -> None:
    assert known_fields(CARD) == CARD
    assert canonical(signed_content(CARD)) == official_payload(CARD)


TEXTS = st.sampled_from(['', 'x', 'é', '\u2028', '"\\\n', '🐸'])
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False, allow_infinity=False, width=64)
    | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
REQUIREMENT: st.SearchStrategy[Any] = st.fixed_dictionaries(
    {'schemes': st.dictionaries(TEXTS, st.fixed_dictionaries({}, optional={'list': st.lists(TEXTS, max_size=2)}))}
)
CARDS: st.SearchStrategy[Any] = st.fixed_dictionaries(
    {},
    optional={
        'name': TEXTS,
        'description': TEXTS | st.none(),
        'url': TEXTS,
        'provider': st.fixed_dictionaries({}, optional={'url': TEXTS, 'organization': TEXTS}),
        'iconUrl': TEXTS,
        'capabilities': st.fixed_dictionaries(
            {},
            optional={
                'streaming': st.booleans(),
                'extensions': st.lists(
                    st.fixed_dictionaries(
                        {},
                        optional={
                            'uri': TEXTS,
                            'required': st.booleans(),
                            'params': st.dictionaries(TEXTS, VALUES, max_size=3),
                        },
                    ),
                    max_size=2,
                ),
            },
        ),
        'securityRequirements': st.lists(REQUIREMENT, max_size=2),
        'securitySchemes': st.dictionaries(
            TEXTS,
            st.fixed_dictionaries({'mtlsSecurityScheme': st.fixed_dictionaries({}, optional={'description': TEXTS})}),
        ),
        'defaultInputModes': st.lists(TEXTS, max_size=3),
        'signatures': st.just([{'protected': 'x', 'signature': 'y'}]),
        'unknown': VALUES,
    },
)


@given(CARDS)
def test_any_card_is_canonicalized_like_official_sdk(card: dict[str, Any]) -> None:
    ours, theirs = canonical(signed_content(card)), official_payload(deepcopy(card))
    # The official SDK signs `null` for a card without any value.
    assert ours == (b'{}' if theirs == b'null' else theirs)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({'name': 1}, 'name is not a string'),
    ({'capabilities': []}, 'capabilities is not an object'),
    ({'capabilities': {'streaming': 'yes'}}, 'capabilities.streaming is not true or false'),
    ({'skills': {}}, 'skills is not a list'),
    ({'skills': [{'tags': [None]}]}, r'skills\[0\].tags\[0\] is not a string'),
    ({'securitySchemes': []}, 'securitySchemes is not an object'),
    ({'capabilities': {'extensions': [{'params': []}]}}, r'capabilities.extensions\[0\].params is not an object'),
    ({'capabilities': {'extensions': [{'params': {'a': 10**400}}]}}, 'beyond the range of a double'),
    ({'name': '\ud800'}, 'has no canonical form'),
]


@pytest.mark.parametrize(('changes', 'place'), WRONG)
def test_card_field_of_wrong_type_is_not_signable(changes: dict[str, Any], place: str) -> None:
    with pytest.raises(NotSignable, match=place):
        canonical(signed_content({**CARD, **changes}))
    with pytest.raises(NotSignable, match='the card is not an object'):
        known_fields([])


def test_card_nested_deeper_than_128_is_not_signable() -> None:
    value: Any = 'x'
    for _ in range(200):
        value = [value]
    with pytest.raises(NotSignable, match='deeper than 128 levels'):
        signed_content({'capabilities': {'extensions': [{'params': {'a': value}}]}})


def test_card_with_two_canonical_forms_has_two_signatures() -> None:
    requirements: list[Any] = [{'schemes': {'key': {'list': []}}}]
    skill: dict[str, Any] = {**CARD['skills'][0], 'inputSchema': {}, 'securityRequirements': requirements}
    card = sign_card({**CARD, 'skills': [skill], 'securityRequirements': requirements, 'url': 'x'}, SIGNER)
    signatures = card.pop('signatures')
    written: list[Any] = [{'schemes': {'key': {}}}]
    assert card == {
        **CARD,
        'securityRequirements': written,
        'skills': [{**CARD['skills'][0], 'securityRequirements': written}],
    }
    assert [{*each} for each in signatures] == [{'protected', 'signature'}] * 2
    header = {
        'alg': 'ES256',
        'typ': 'JOSE',
        'kid': SIGNER.keys[0].kid,
        'jku': 'https://x.example/.well-known/jwks.json',
    }
    for signature in signatures:
        assert from_json(base64url_decode(signature['protected'])) == {**header, CARD_DIGEST: card_digest(card)}
    assert canonical(signed_content(card)) == official_payload(parse(card))
    assert canonical(everything(card)) == canonical(known_fields(card)) != official_payload(card)


def test_card_with_matching_forms_has_single_signature() -> None:
    card = sign_card(CARD, SIGNER)
    assert len(card['signatures']) == 1
    assert canonical(everything(card)) == canonical(known_fields(card)) == official_payload(parse(card))


def parse(card: dict[str, Any]) -> dict[str, Any]:
    """The card, once the official client has read it."""
    parse_agent_card(deepcopy(card))
    return card


@pytest.mark.parametrize(
    ('changes', 'place'),
    [
        ({'description': ''}, 'description'),
        ({'defaultInputModes': []}, 'defaultInputModes'),
        ({'skills': [{**CARD['skills'][0], 'tags': ['', 's']}]}, r'skills\[0\].tags\[0\]'),
        ({'securitySchemes': {'mtls': {'mtlsSecurityScheme': {}}}}, 'securitySchemes.mtls.mtlsSecurityScheme'),
        ({'capabilities': {'extensions': [{'uri': 'x', 'params': {'a': None}}]}}, r'extensions\[0\].params.a'),
        ({'capabilities': {'extensions': [{'uri': 'x', 'params': {'a': 2**53 + 1}}]}}, None),
    ],
)
def test_card_with_empty_value_is_not_signed(changes: dict[str, Any], place: str | None) -> None:
    if place is None:
        sign_card({**CARD, **changes}, SIGNER)
        return
    with pytest.raises(ValueError, match=f'cannot be signed, because (\\S*){place} is empty'):
        sign_card({**CARD, **changes}, SIGNER)


@pytest.mark.parametrize('number', [2**53 - 1, 2**53, 2**53 + 2, 1 - 2**53, -(2**53)])
def test_large_whole_number_is_signed_as_double(number: int) -> None:
    content = signed_content({'capabilities': {'extensions': [{'params': {'a': number}}]}})
    assert canonical(content) == b'{"capabilities":{"extensions":[{"params":{"a":%d}}]}}' % number


def test_empty_schema_keywords_without_effect_are_removed_before_signing() -> None:
    name: dict[str, Any] = {'type': 'string', 'default': '', 'title': 'Name'}
    properties: dict[str, Any] = {
        'name': name,
        'default': name,
        'of': {'default': {'deep': ['']}, 'anyOf': [{'type': 'null'}]},
    }
    schema: dict[str, Any] = {'type': 'object', 'properties': properties, 'required': [], '$defs': {}}
    params: dict[str, Any] = {
        'inputSchema': schema,
        'outputSchema': {'type': 'null', 'default': None, 'examples': [0, False]},
    }
    extensions: list[dict[str, Any]] = [{'uri': 'x'}, {'uri': 'y', 'params': params}]
    card = sign_card({**CARD, 'capabilities': {'extensions': extensions}}, SIGNER)
    shown = {'type': 'string', 'title': 'Name'}
    assert card['capabilities']['extensions'] == [
        {'uri': 'x'},
        {
            'uri': 'y',
            'params': {
                'inputSchema': {
                    'type': 'object',
                    'properties': {'name': shown, 'default': shown, 'of': {'anyOf': [{'type': 'null'}]}},
                },
                'outputSchema': {'type': 'null', 'examples': [0, False]},
            },
        },
    ]
    assert canonical(signed_content(card)) == official_payload(parse(card))
    assert schema['required'] == [], 'the schema itself has not changed'


def test_schema_with_meaningful_empty_value_is_not_signed() -> None:
    extensions = [{'uri': 'x', 'params': {'inputSchema': {'enum': ['', 'a']}}}]
    with pytest.raises(ValueError, match=r'params\.inputSchema\.enum\[0\] is empty'):
        sign_card({**CARD, 'capabilities': {'extensions': extensions}}, SIGNER)
