"""Types as written in code."""

from __future__ import annotations

import types
from typing import Annotated, Any, Literal, Union, get_args, get_origin

UNIONS = (Union, types.UnionType)


def type_name(tp: Any) -> str:
    """Return a type as written in code, without its modules."""
    if tp is None or tp is type(None):
        return 'None'
    if tp is ...:
        return '...'
    origin, args = get_origin(tp), get_args(tp)
    if origin is None:
        return getattr(tp, '__name__', str(tp))
    if origin is Annotated:
        return type_name(args[0])
    if origin in UNIONS:
        return ' | '.join(map(type_name, args))
    inner = map(repr if origin is Literal else type_name, args)
    return f'{type_name(origin)}[{", ".join(inner)}]'
