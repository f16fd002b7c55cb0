"""The tenant of a caller, from the caller's credentials or from the request."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import cast

from ...settings.access import TenantRule
from ...types.callers import Caller
from ...wire.protocol.request_fields import MAX_ID
from .operator_functions import allows


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
        rule: The rule of the settings.
        reserved: First segments of the app's paths. No tenant may have such a name.

    Raises:
        ValueError: A name is reserved or not legal in a path.
    """

    def __init__(self, rule: TenantRule, reserved: Collection[str]) -> None:
        self._reserved = frozenset(reserved)
        self._rule = rule
        if isinstance(rule, Collection):
            self._rule = names = frozenset(cast('Collection[str]', rule))
            if bad := sorted(name for name in names if not self.may_be(name)):
                raise ValueError(
                    f'{bad[0]!r} cannot be the name of a tenant: the name is reserved, or not valid in a path.'
                )

    def may_be(self, name: str) -> bool:
        """Return whether a tenant could have the name. The tenant need not exist."""
        return is_name(name, self._reserved)

    async def settle(self, caller: Caller, name: str) -> Caller | None:
        """Return the caller in the tenant that the request names; None if the caller may not act in this tenant.

        Args:
            caller: The caller of the credentials. A tenant of the credentials cannot be changed.
            name: The tenant; empty if the request names no tenant.
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
        return await allows('Access.tenants', rule, caller, name)
