"""Reader of agent cards, as clients receive the cards of A2A 1.0, of 0.3 and of both (§4.4, §8)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, cast

from pydantic import BeforeValidator

from ...json_values import as_list, as_object
from ...notebooks import HtmlCard
from ...types.a2a_objects import AgentCard, AgentInterface
from .lenient_reading import AnswerUnreadable, current_agent, one_line, read_answer, warn_once
from .security_schemes import load_requirements, load_scheme

_SKILL: Mapping[str, Any] = {'name': '', 'description': '', 'tags': [], 'inputModes': [], 'outputModes': []}
_EMPTY: Mapping[str, Any] = {'description': '', 'version': '', 'defaultInputModes': [], 'defaultOutputModes': []}


def _filled(wire: dict[str, Any]) -> dict[str, Any]:
    """Return a card with empty values in the place of the fields that A2A allows to be absent."""
    return {**_EMPTY, **wire, 'skills': [{**_SKILL, **skill} for skill in wire['skills']]}


_BINDINGS = ('JSONRPC', 'HTTP+JSON', 'GRPC')
_Card = Annotated[AgentCard, BeforeValidator(_filled)]


def read_card(value: object) -> AgentCard:
    """Read an agent card. Fields that A2A allows to be absent are empty; the fields of 0.3 become those of 1.0.

    Raises:
        AnswerUnreadable: The value is no agent card.
    """
    wire = as_object(value)
    if not isinstance(wire.get('name'), str):
        raise AnswerUnreadable('name: an agent card needs the name of the agent')
    capabilities = {name: value for name, value in _object(wire, 'capabilities').items() if value is not None}
    if wire.get('supportsAuthenticatedExtendedCard') is True:
        capabilities = {'extendedAgentCard': True, **capabilities}
    card = {
        **_secured(wire),
        'capabilities': capabilities,
        'skills': [_secured(skill) for skill in _objects(wire, 'skills')],
        'supportedInterfaces': [*_interfaces(wire)],
    }
    return cast('AgentCard', HtmlCard(read_answer(_Card, card)))


def _secured(wire: dict[str, Any]) -> dict[str, Any]:
    """Return the set fields of a card or a skill, with its security in FastA2A's shape."""
    declared = _object(wire, 'securitySchemes')
    schemes = {name: load_scheme(as_object(scheme)) for name, scheme in declared.items()}
    for name in [name for name, scheme in schemes.items() if scheme is None]:
        warn_once(current_agent.get(), one_line(f'securitySchemes.{name}: must be a kind that A2A has'))
    newer = [{'schemes': _object(requirement, 'schemes')} for requirement in _objects(wire, 'securityRequirements')]
    security = {
        'securitySchemes': {name: scheme for name, scheme in schemes.items() if scheme is not None},
        'securityRequirements': load_requirements(newer, _objects(wire, 'security')),
    }
    others = {name: value for name, value in wire.items() if value is not None and name not in security}
    return others | {name: value for name, value in security.items() if value}


def _interfaces(wire: dict[str, Any]) -> Iterator[AgentInterface]:
    newer = _objects(wire, 'supportedInterfaces')
    for interface in newer:
        binding = _binding(interface.get('protocolBinding'))
        yield cast('AgentInterface', {'protocolVersion': '1.0', **interface, 'protocolBinding': binding})
    if newer or not isinstance(wire.get('url'), str):
        return
    version = wire.get('protocolVersion') or '0.3.0'
    first = {'url': wire['url'], 'transport': wire.get('preferredTransport') or 'JSONRPC'}
    for interface in (first, *_objects(wire, 'additionalInterfaces')):
        binding = _binding(interface.get('transport'))
        yield cast(
            'AgentInterface', {'url': interface.get('url'), 'protocolBinding': binding, 'protocolVersion': version}
        )


def _binding(name: object) -> object:
    """Return the name of a binding; those of A2A also if they are in lower case."""
    return name.upper() if isinstance(name, str) and name.upper() in _BINDINGS else name


def _object(wire: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the object in a field; empty for none, and for another value, which is logged."""
    value: Any = wire.get(name)
    fields = {**as_object(value)}
    if value is not None and fields != value:
        warn_once(current_agent.get(), f'{name}: must be an object')
    return fields


def _objects(wire: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    """Return the objects in the list of a field. Other values are logged."""
    value = wire.get(name)
    listed = as_list(value)
    objects = [cast('dict[str, Any]', item) for item in listed if isinstance(item, dict)]
    if value is not None and (len(objects) < len(listed) or not isinstance(value, list)):
        warn_once(current_agent.get(), f'{name}: must be a list of objects')
    return objects
