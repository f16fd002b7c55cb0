"""Which tenant a caller acts in: as its credentials say, or as its request names it. Knows neither paths nor params."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from inspect import isawaitable
from typing import cast

from ..protocol.fields import MAX_ID
from ..settings import TenantRule
from ..types import Caller

__all__ = ('Tenants', 'is_name')


def is_name(name: str, reserved: Collection[str]) -> bool:
    """True if a tenant can have the name: it can stand in a path and is none of the reserved names."""
    return (
        0 < len(name) <= MAX_ID
        and name not in reserved
        and name not in ('.', '..')
        and not name.startswith('message:')
        and name.isprintable()
    )


class Tenants:
    """The tenants that requests may name.

    Args:
        rule: Which.
        reserved: First segments of the app's paths, which no tenant is called.

    Raises:
        ValueError: A name is reserved, or none that can stand in a path.
    """

    def __init__(self, rule: TenantRule, reserved: Collection[str]) -> None:
        self._reserved = frozenset(reserved)
        self._rule = rule
        if isinstance(rule, Collection):
            self._rule = names = frozenset(cast('Collection[str]', rule))
            if bad := sorted(name for name in names if not self.may_be(name)):
                raise ValueError(f'No tenant can be called {bad[0]!r}: it is reserved, or no name for a path.')

    def may_be(self, name: str) -> bool:
        """Whether a tenant can have a name, whether there is such a one or not."""
        return is_name(name, self._reserved)

    async def settle(self, caller: Caller, name: str) -> Caller | None:
        """The caller in the tenant that its request names; None if there is none of that name, or not for this caller.

        Args:
            caller: As its credentials say; what they say of a tenant holds.
            name: The tenant; empty if the request names none.
        """
        if not name or name == caller.tenant:
            return caller
        if caller.tenant or not self.may_be(name) or not await self._allows(caller, name):
            return None
        return replace(caller, tenant=name)

    async def _allows(self, caller: Caller, name: str) -> bool:
        rule = self._rule
        if isinstance(rule, bool):
            return rule
        if isinstance(rule, Collection):
            return name in rule
        allowed = rule(caller, name)
        return await allowed if isawaitable(allowed) else allowed
