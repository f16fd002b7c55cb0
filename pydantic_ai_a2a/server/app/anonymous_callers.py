"""Anonymous callers: no app without authentication is served at a public address, unless the user asks for it."""

from __future__ import annotations

from starlette.types import ASGIApp

from ...public_hosts import is_loopback
from ..http.allowed_hosts import AllowedHosts
from .served_apps import served_apps


def check_anonymous(
    app: ASGIApp,
    host: str,
    hosts: AllowedHosts | None,
    anonymous: bool,
    *,
    name: str = 'The app',
    say: str = 'anonymous=True',
) -> None:
    """Refuse to serve an app without authentication at a public address, unless the user asks for anonymous callers.

    Args:
        app: The app.
        host: The host to listen on.
        hosts: More names that the app answers for, such as the names of a proxy on this machine.
        anonymous: True if the user asks for anonymous callers.
        name: The name of the app in an error.
        say: The option for anonymous callers, in an error.

    Raises:
        ValueError: Everybody could call the app, and the user has not asked for anonymous callers.
    """
    apps = list(served_apps(app))
    for agent in apps:
        agent.guard.expected |= anonymous
    open_to_all = [agent for agent in apps if agent.guard.anonymous]
    allowed = (hosts, *(agent.allowed_hosts for agent in open_to_all))
    names = [host, *(hostname for group in allowed if group is not None for hostname in group.names)]
    public = next((hostname for hostname in names if not is_loopback(hostname)), None)
    if anonymous or public is None:
        return
    if open_to_all:
        raise ValueError(
            f'{name} does not authenticate callers, and other machines can reach {public}: give to_a2a() an auth=,'
            f' or say {say}.'
        )
    if not apps:
        raise ValueError(
            f'{name} has no app of to_a2a() that can be found, so nothing shows whether {public} authenticates callers:'
            f' set the attribute app of each middleware to the app that the middleware wraps. To let everybody call,'
            f' say {say}.'
        )
