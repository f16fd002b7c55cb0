"""Reader of agent cards, as clients receive the cards of A2A 1.0, of 0.3 and of both (§4.4, §8)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from fasta2a.schema import AgentCard, AgentInterface, agent_card_ta
from pydantic import ValidationError

from ..card import load_requirements, load_scheme
from ..notebooks import HtmlCard
from .answers import AnswerUnreadable

__all__ = ('read_card',)


def read_card(value: object) -> AgentCard:
    """Read an agent card. Fields that A2A allows to be absent are empty; the fields of 0.3 become those of 1.0.

    Raises:
        AnswerUnreadable: The value is no agent card.
    """
    wire = _object(value)
    if not isinstance(wire.get('name'), str):
        raise AnswerUnreadable('name: an agent card needs the name of the agent')
    skills = [_skill(skill) for skill in _objects(wire.get('skills'))]
    declared = _object(wire.get('capabilities'))
    capabilities = {name: value for name, value in declared.items() if value is not None}
    if wire.get('supportsAuthenticatedExtendedCard') is True:
        capabilities = {'extendedAgentCard': True, **capabilities}
    card = {
        'description': '',
        'version': '',
        'defaultInputModes': [],
        'defaultOutputModes': [],
        **_secured(wire),
        'capabilities': capabilities,
        'skills': skills,
        'supportedInterfaces': [*_interfaces(wire)],
    }
    try:
        read = agent_card_ta.validate_python(card)
    except ValidationError as error:
        [first, *_] = error.errors(include_url=False, include_context=False, include_input=False)
        raise AnswerUnreadable(f'{".".join(map(str, first["loc"]))}: {first["msg"]}') from None
    return cast('AgentCard', HtmlCard(read))


def _skill(wire: dict[str, Any]) -> dict[str, Any]:
    return {
        'name': '',
        'description': '',
        'tags': [],
        'inputModes': [],
        'outputModes': [],
        **_secured(wire),
    }


def _secured(wire: dict[str, Any]) -> dict[str, Any]:
    """Return the set fields of a card or a skill, with its security in FastA2A's shape."""
    schemes = {name: load_scheme(_object(scheme)) for name, scheme in _object(wire.get('securitySchemes')).items()}
    security = {
        'securitySchemes': {name: scheme for name, scheme in schemes.items() if scheme is not None},
        'securityRequirements': load_requirements(
            _objects(wire.get('securityRequirements')), _objects(wire.get('security'))
        ),
    }
    others = {name: value for name, value in wire.items() if value is not None and name not in security}
    return others | {name: value for name, value in security.items() if value}


def _interfaces(wire: dict[str, Any]) -> Iterator[AgentInterface]:
    newer = _objects(wire.get('supportedInterfaces'))
    for interface in newer:
        yield cast('AgentInterface', {'protocolVersion': '1.0', **interface})
    if newer or not isinstance(wire.get('url'), str):
        return
    version = wire.get('protocolVersion') or '0.3.0'
    first = {'url': wire['url'], 'transport': wire.get('preferredTransport') or 'JSONRPC'}
    for interface in (first, *_objects(wire.get('additionalInterfaces'))):
        binding = interface.get('transport')
        yield cast(
            'AgentInterface', {'url': interface.get('url'), 'protocolBinding': binding, 'protocolVersion': version}
        )


def _object(value: object) -> dict[str, Any]:
    return cast('dict[str, Any]', value) if isinstance(value, dict) else {}


def _objects(value: object) -> list[dict[str, Any]]:
    listed = cast('list[object]', value) if isinstance(value, list) else []
    return [cast('dict[str, Any]', item) for item in listed if isinstance(item, dict)]
