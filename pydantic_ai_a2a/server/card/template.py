"""The agent card, made of the agent's facts and the user's settings (§4.4, §8).

One JSON object is a card of A2A 1.0 and of 0.3: a client ignores the fields of the other version.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from copy import deepcopy
from functools import lru_cache
from itertools import chain
from typing import Any, cast
from urllib.parse import quote

from pydantic_core import to_json

from ...types.a2a_objects import (
    AgentCapabilities,
    AgentCard,
    AgentExtension,
    AgentInterface,
    SecurityRequirement,
    Skill,
    agent_card_ta,
)
from ...wire.extensions.card_schemas import with_skills
from ...wire.protocol.security_schemes import check_schemes, dump_requirements, dump_scheme
from .card_facts import CardFacts
from .card_settings import CardSettings

_BINDING = 'JSONRPC'
_HTTP = 'HTTP+JSON'
_NEWER = '1.0'
_OLDER = '0.3'
_GRPC = 'GRPC'
_INTERFACES = ((_BINDING, _NEWER), (_HTTP, _NEWER), (_GRPC, _NEWER), (_BINDING, _OLDER))
"""The declared bindings and versions; the preferred one first (§8.3.1). All are at one URL, except gRPC."""
_URLS = 32
"""Size of the cache of rendered cards, one for each URL of the server and each tenant."""
_OWN = ('supported_interfaces', 'capabilities', 'security_schemes', 'security_requirements', 'signatures')
"""Fields that describe the server: an extended card cannot change them."""


class CardTemplate:
    """A card without the server's URL and the tenant, which depend on the request.

    A card without signatures has the fields of all served versions. A signed card has only the fields of A2A 1.0, so
    clients of 0.3 get a card of their own.

    Args:
        facts: Facts about the agent.
        settings: The user's settings of the card.
        sign: Returns the JSON of a card of A2A 1.0 with signatures. None: cards have no signatures.

    Raises:
        ValueError: The card would not be valid. The text names the fault and its place.
    """

    def __init__(
        self,
        facts: CardFacts,
        settings: CardSettings,
        sign: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None,
    ) -> None:
        self._modes = {'input_modes': list(facts.input_modes), 'output_modes': list(facts.output_modes)}
        self._versions = settings.versions
        self._http_json = settings.http_json
        self._grpc: Callable[[str], str | None] | None = None
        self._sign = sign
        self._card = _checked(_card(facts, settings, self._modes))
        self.missing = _missing(facts, settings)
        """What the user has not given, and by which others find the agent."""
        self.capabilities = _capabilities(settings)
        """Names of the capabilities that the card declares (§4.4.3)."""
        self.extensions: list[AgentExtension] = [*self._card['capabilities'].get('extensions', ())]
        """The declared extensions (§4.6)."""
        self.needs_extensions = any(extension.get('required') for extension in self.extensions)
        """True if clients must declare an extension in their requests."""
        self._extensions = tuple(self.extensions)
        self._cached = lru_cache(maxsize=_URLS)(self._render)

    @property
    def name(self) -> str:
        """Name of the agent."""
        return self._card['name']

    @property
    def by_version(self) -> bool:
        """True if clients of different versions get different cards."""
        return self._sign is not None and len(self._versions) > 1

    def render(self, url: str, tenant: str = '', version: str = _NEWER) -> bytes:
        """Return the card as JSON.

        Args:
            url: The absolute URL of the agent.
            tenant: The tenant; empty for none.
            version: The protocol version of the client. Cards without signatures are the same for all versions.
        """
        return self._cached(url, tenant, version if self.by_version else _NEWER)

    def public(self, url: str, tenant: str = '') -> AgentCard:
        """Return the card as a value."""
        card = deepcopy(self._card)
        urls = self._places(url)
        if extensions := self.extensions if _GRPC in urls else self._extensions:
            card['capabilities']['extensions'] = [*deepcopy(extensions)]
        card['supported_interfaces'] = [
            _interface(binding, version, urls[binding], tenant)
            for binding, version in _INTERFACES
            if version in self._versions and binding in urls
        ]
        return card

    def _places(self, url: str) -> dict[str, str]:
        """Return the URLs of the bindings. A gRPC call does not tell the URL of the agent over HTTP."""
        grpc = None if self._grpc is None else self._grpc(url)
        urls = {} if grpc is None else {_GRPC: grpc}
        if url or not urls:
            urls[_BINDING] = url
            if self._http_json:
                urls[_HTTP] = url
        return urls

    def serve_grpc(self, place: Callable[[str], str | None] | None, extensions: Iterable[AgentExtension]) -> None:
        """Declare the gRPC binding from now on, or withdraw it.

        Args:
            place: Returns `host:port` of the gRPC server, from the URL of the agent, or None to leave it off this card.
                None in its place withdraws the binding.
            extensions: Extensions of the binding.
        """
        self._grpc = place
        self.extensions = [*self._extensions, *(() if place is None else extensions)]
        self._cached.cache_clear()

    def extended(self, public: AgentCard, fields: Mapping[str, Any], version: str = _NEWER) -> bytes:
        """Return an extended card as JSON (§3.1.11).

        Args:
            public: A card from `public`.
            fields: Fields that replace the public card's, by FastA2A's names.
            version: The protocol version of the client, as for `render`.

        Raises:
            ValueError: The card would not be valid, or differs from the public one in a field of the server.
        """
        for name in _OWN:
            if name in fields and fields[name] != public.get(name):
                raise ValueError(
                    f'The extended agent card must have the same {name} as the public card: remove the field.'
                )
        skills = [cast('Skill', {**skill, **self._modes, **skill}) for skill in fields.get('skills', public['skills'])]
        card = with_skills(cast('AgentCard', {**public, **fields, 'skills': skills}), skills)
        return self._json(_checked(card), version)

    def _render(self, url: str, tenant: str, version: str) -> bytes:
        return self._json(self.public(url, tenant), version)

    def _json(self, card: AgentCard, version: str) -> bytes:
        versions = self._versions
        if self._sign is not None:
            versions = (version,) if version in versions else versions[:1]
        wire = _wire(card, versions)
        if self._sign is not None and _NEWER in versions:
            return to_json(self._sign(wire))
        if _OLDER in versions:  # 0.3 has these fields instead of interfaces (0.3 §5.5)
            wire |= {
                'url': wire['supportedInterfaces'][-1]['url'],
                'preferredTransport': _BINDING,
                'protocolVersion': '0.3.0',
                'supportsAuthenticatedExtendedCard': wire['capabilities']['extendedAgentCard'],
            }
        if _NEWER not in versions:
            del wire['supportedInterfaces'], wire['capabilities']['extendedAgentCard']
        return to_json(wire)


def _interface(binding: str, version: str, url: str, tenant: str) -> AgentInterface:
    if tenant and version == _OLDER:  # has no field for the tenant
        url, tenant = f'{url.removesuffix("/")}/{quote(tenant, safe="")}/', ''
    interface = AgentInterface(url=url, protocol_binding=binding, protocol_version=version)
    if tenant:
        interface['tenant'] = tenant
    return interface


def _capabilities(settings: CardSettings) -> frozenset[str]:
    has = {
        'streaming': settings.streaming,
        'pushNotifications': settings.push_notifications,
        'extendedAgentCard': settings.extended,
    }
    return frozenset(name for name, there in has.items() if there)


def _missing(facts: CardFacts, settings: CardSettings) -> list[str]:
    given = {
        'description': settings.description or facts.description,
        'skills': settings.skills,
        'examples': any(skill.get('examples') for skill in settings.skills),
    }
    return [name for name, value in given.items() if not value]


def _card(facts: CardFacts, settings: CardSettings, modes: Mapping[str, Any]) -> AgentCard:
    name = settings.name or facts.name or 'agent'
    description = settings.description or facts.description or f'An AI agent called {name}.'
    capabilities = AgentCapabilities(
        streaming=settings.streaming,
        push_notifications=settings.push_notifications,
        extended_agent_card=settings.extended,
    )
    if extensions := [*settings.extensions, *facts.schemas.declared()]:
        capabilities['extensions'] = extensions
    card = AgentCard(
        name=name,
        description=description,
        supported_interfaces=list[AgentInterface](),
        version=settings.version,
        capabilities=capabilities,
        default_input_modes=list(facts.input_modes),
        default_output_modes=list(facts.output_modes),
        skills=_skills(name, description, settings.skills, modes),
    )
    if settings.provider:
        card['provider'] = settings.provider
    if settings.security_schemes:
        card['security_schemes'] = dict(settings.security_schemes)
    if settings.security_requirements:
        card['security_requirements'] = list(settings.security_requirements)
    return with_skills(card, settings.skills)


def _skills(name: str, description: str, skills: Sequence[Skill], modes: Mapping[str, Any]) -> list[Skill]:
    """Return the user's skills, or one that stands for the agent: the list must not be empty (§5.7).

    FastA2A requires the modes that A2A leaves optional, so a skill without modes gets the card's.
    """
    slug = re.sub(r'[\W_]+', '-', name.lower()).strip('-') or 'agent'
    derived = {'id': slug, 'name': name, 'description': description, 'tags': ['agent']}
    return [cast('Skill', {**skill, **modes, **skill}) for skill in skills or [derived]]


def _checked(card: AgentCard) -> AgentCard:
    """Validate a card. Empty values and unknown security schemes are refused, too (§4.4, §5.7)."""
    _need('The agent card', card, 'version', 'default_input_modes', 'default_output_modes')
    for n, skill in enumerate(card['skills']):
        _need(f'skills[{n}]', skill, 'id', 'name', 'description', 'tags', 'input_modes', 'output_modes')
    if provider := card.get('provider'):
        _need('provider', provider, 'organization', 'url')
    for n, extension in enumerate(card['capabilities'].get('extensions', ())):
        _need(f'extensions[{n}]', extension, 'uri')
    valid = agent_card_ta.validate_python(card, by_alias=False, by_name=True)
    ids = Counter(skill['id'] for skill in valid['skills'])
    if repeated := next((name for name, count in ids.items() if count > 1), None):
        raise ValueError(f'Two skills have the id {repeated!r}: give one of them another id.')
    schemes = valid.get('security_schemes', {})
    check_schemes(schemes)
    for requirement in _requirements(valid):
        if missing := requirement['schemes'].keys() - schemes.keys():
            raise ValueError(
                f'The security scheme {min(missing)!r} is required but not among security_schemes: add the scheme.'
            )
    return valid


def _need(what: str, values: Mapping[str, Any], *keys: str) -> None:
    for key in keys:
        if not values.get(key):
            raise ValueError(f'{what} needs {key}.')


def _requirements(card: AgentCard) -> list[SecurityRequirement]:
    """Return the security requirements of the card and of its skills."""
    skills = (skill.get('security_requirements', ()) for skill in card['skills'])
    return [*card.get('security_requirements', ()), *chain.from_iterable(skills)]


def _wire(card: AgentCard, versions: Collection[str]) -> dict[str, Any]:
    """Return the card with the names of its JSON form, and security in the shapes of the versions."""
    wire: dict[str, Any] = agent_card_ta.dump_python(card, mode='json', by_alias=True)
    if schemes := wire.get('securitySchemes'):
        wire['securitySchemes'] = {name: dump_scheme(scheme, versions) for name, scheme in schemes.items()}
    for holder in (wire, *wire['skills']):
        if requirements := holder.pop('securityRequirements', None):
            holder.update(dump_requirements(requirements, versions))
    return wire
